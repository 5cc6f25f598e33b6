"""The route of resume targets: answers, strict questions, validators, the last known answer."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from ckptguard.errors import ServiceUnavailableError
from ckptguard.model.service import Lifecycle, Scope, ValidationState
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.database import Database
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.routes.resume_document import ResumeTargetDocument
from ckptguard_api.tables import checkpoints, runs
from tests.served_app import ServedApp
from tests.service_rows import (
    add_checkpoint,
    add_finding,
    add_run,
    add_store,
    add_validation,
)

PATH = "/v1/runs/r/resume-target"


@pytest.fixture
def run_id(served: ServedApp) -> int:
    """Return a run with a VALID step 100, and 200 that is damaged."""
    with served.services.database.write() as tx:
        store_id = add_store(tx, 1)
        made = add_run(tx, 1, "r", revision=1)
        add_checkpoint(tx, made, store_id, step=100, verdict=Verdict.VALID)
        damaged = add_checkpoint(tx, made, store_id, step=200, verdict=Verdict.INVALID)
        validation = tx.execute(checkpoints.select().where(checkpoints.c.id == damaged)).one()
        add_finding(tx, validation.verdict_validation_id, message="record data/0")
        return made


def ask(client: httpx.Client, **question: object) -> dict[str, Any]:
    """Ask, and hold the answer against its document."""
    answer = client.get(PATH, params={name: str(value) for name, value in question.items()})
    assert answer.status_code == 200, answer.text
    ResumeTargetDocument.model_validate_json(answer.content)
    told: dict[str, Any] = answer.json()
    return told


def change(database: Database, run_id: int, step: int, **values: object) -> None:
    """Change a checkpoint as a use case does: with the run's revision."""
    with database.write() as tx:
        is_this = (checkpoints.c.run_id == run_id) & (checkpoints.c.step == step)
        tx.execute(update(checkpoints).where(is_this).values(values))
        touch_run(tx, run_id)


def test_newest_valid_is_the_target_and_the_damaged_newer_one_is_explained(
    served: ServedApp, run_id: int
) -> None:
    told = ask(served.client(Scope.READ))
    assert (told["state"], told["target"]["step"], told["index"]) == ("valid", 100, 1)
    assert told["target"]["url"].startswith("file:///data/demo/run/step-100")
    (passed,) = told["passed_over"]
    assert (passed["step"], passed["reason"], passed["basis"]) == (200, "invalid", "damage")
    assert passed["detail"] == "crc_mismatch in __0_0.distcp (record data/0)"
    assert told["passed_over_total"] == 1
    assert run_id


@pytest.mark.parametrize(
    ("step", "values"),
    [
        (100, {"is_quarantined": True}),
        (100, {"is_suspect": True}),
        (100, {"lifecycle": "deleted"}),
        (100, {"lifecycle": "superseded", "superseded_by": "rewritten"}),
    ],
)
def test_answer_given_before_is_never_given_after_the_change(
    served: ServedApp, run_id: int, step: int, values: dict[str, object]
) -> None:
    client = served.client(Scope.READ)
    assert ask(client)["state"] == "valid"
    other = Database(served.services.database.engine.url.render_as_string(hide_password=False))
    change(other, run_id, step, **values)  # by another process, which tells this one nothing
    other.close()
    assert ask(client)["state"] == "none_valid"


def test_policy_of_the_run_is_what_is_asked_unless_the_launcher_says_otherwise(
    served: ServedApp, run_id: int
) -> None:
    client = served.client(Scope.READ)
    with served.services.database.write() as tx:
        tx.execute(update(runs).values(min_assurance=Assurance.RESUMABLE.value))
        touch_run(tx, run_id)
    told = ask(client)
    assert (told["state"], told["target"], told["below"]["step"]) == ("valid_below", None, 100)
    assert told["asked"]["min_assurance"] == "resumable"
    assert ask(client, min_assurance="loaded")["state"] == "valid"


def test_what_the_launcher_does_not_find_whole_counts_as_deleted(served: ServedApp, run_id: int) -> None:
    with served.services.database.write() as tx:
        newest = add_checkpoint(tx, run_id, 1, step=100, verdict=Verdict.VALID, branch=1)
        content = Assurance.CONTENT
        below = add_checkpoint(tx, run_id, 1, step=100, verdict=Verdict.VALID, assurance=content)
        touch_run(tx, run_id)
        ids = [row.id for row in tx.execute(checkpoints.select().order_by(checkpoints.c.id))]
    client, first = served.client(Scope.READ), ids[0]
    assert ask(client)["target"]["id"] == newest
    told = ask(client, exclude=newest)
    assert (told["target"]["id"], told["asked"]["exclude"]) == (first, [newest])
    assert newest not in [passed["id"] for passed in told["passed_over"]]
    assert told["superseded"] == 1
    assert ask(client, exclude=newest, step=100)["target"]["id"] == first
    told = ask(client, exclude=f"{first},{newest},{first}")
    assert (told["state"], told["below"]["id"]) == ("valid_below", below)
    assert told["asked"]["exclude"] == [first, newest]
    told = ask(client, exclude=",".join(map(str, ids)))
    assert (told["state"], told["passed_over"], told["superseded"]) == ("none_valid", [], 4)


def test_what_is_excluded_is_not_waited_for(served: ServedApp, run_id: int) -> None:
    with served.services.database.write() as tx:
        coming = add_checkpoint(tx, run_id, 1, step=300)
        add_validation(tx, coming)
        touch_run(tx, run_id)
    client = served.client(Scope.READ)
    assert ask(client, require_newest=True)["state"] == "pending"
    assert ask(client, require_newest=True, exclude=coming)["state"] == "valid"


@pytest.mark.parametrize("exclude", ["", "x", "1,", "-1", "0", "1 2", "9" * 19, ",".join(["1"] * 33)])
def test_what_cannot_be_excluded_is_refused(served: ServedApp, exclude: str) -> None:
    answer = served.client(Scope.READ).get(PATH, params={"exclude": exclude})
    assert answer.status_code == 422
    assert answer.json()["problems"][0].startswith("query exclude: ")


def test_unknown_run_is_an_answer(served: ServedApp) -> None:
    told = ask(served.client(Scope.READ))
    assert (told["state"], told["index"], told["passed_over"]) == ("unknown_run", 0, [])


def test_run_of_another_project_is_unknown(served: ServedApp, run_id: int) -> None:
    assert run_id
    assert ask(served.client(Scope.READ, project="other"))["state"] == "unknown_run"


def test_every_problem_of_a_question_is_told(door: ServedApp) -> None:
    query = "?min_assurance=best&step=-1&step=2&wait_s=601&max_age_s=nan&device=&newest=1&index=x"
    answer = door.client(Scope.READ).get(PATH + query)
    assert answer.status_code == 422
    told = sorted(problem.split(":")[0] for problem in answer.json()["problems"])
    names = ("device", "index", "max_age_s", "min_assurance", "newest", "step", "wait_s")
    assert told == [f"query {name}" for name in names]


def test_same_answer_is_not_sent_twice(served: ServedApp, run_id: int) -> None:
    client = served.client(Scope.READ)
    tag = client.get(PATH).headers["ETag"]
    again = client.get(PATH, headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    change(served.services.database, run_id, 100, is_suspect=True)
    assert client.get(PATH, headers={"If-None-Match": tag}).status_code == 200


def test_more_than_a_hundred_are_counted_and_a_hundred_named(served: ServedApp, run_id: int) -> None:
    with served.services.database.write() as tx:
        for step in range(300, 420):
            add_checkpoint(tx, run_id, 1, step=step, lifecycle=Lifecycle.INCOMPLETE)
        add_checkpoint(tx, run_id, 1, step=500, lifecycle=Lifecycle.SUPERSEDED)
        touch_run(tx, run_id)
    told = ask(served.client(Scope.READ))
    assert told["target"]["step"] == 100
    assert (len(told["passed_over"]), told["passed_over_total"], told["superseded"]) == (100, 121, 1)
    assert told["passed_over"][0]["step"] == 419


def test_announcement_that_nobody_keeps_alive_ends_without_a_word(served: ServedApp) -> None:
    with served.services.database.write() as tx:
        store_id = add_store(tx, 1)
        run_id = add_run(tx, 1, "r", revision=1)
        ends_at = tx.now + timedelta(seconds=2)
        add_checkpoint(tx, run_id, store_id, step=1, lifecycle=Lifecycle.ANNOUNCED, keep_alive_until=ends_at)
    client = served.client(Scope.READ)
    assert ask(client)["state"] == "pending"
    states = set()
    while "none_valid" not in states:  # ends with the test's timeout at the latest
        states.add(ask(client)["state"])
    assert states <= {"pending", "none_valid"}


def test_running_validation_is_shown(served: ServedApp, run_id: int) -> None:
    with served.services.database.write() as tx:
        newer = add_checkpoint(tx, run_id, 1, step=300)
        add_validation(tx, newer, state=ValidationState.QUEUED)
        touch_run(tx, run_id)
    (passed, _) = ask(served.client(Scope.READ))["passed_over"]
    assert (passed["reason"], passed["validation"]["state"]) == ("queued", "queued")


def test_database_that_is_down_is_said_with_the_last_known_answer_marked(
    served: ServedApp, run_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = served.client(Scope.READ)
    known = ask(client)
    monkeypatch.setattr(served.services.revisions, "source", _Dead())
    down = client.get(PATH)
    assert (down.status_code, down.headers["Retry-After"] != "") == (503, True)
    last_known = down.json()["last_known"]
    assert last_known["answer"] == known | {"is_cached": True}
    assert 0 <= last_known["age_s"] < 60
    assert "last_known" not in client.get("/v1/runs/other/resume-target").json()
    assert run_id


class _Dead:
    """A database that is down."""

    async def ask(self, _: object) -> None:
        msg = "the database gave no answer"
        raise ServiceUnavailableError(msg)

    async def close(self) -> None:
        """Nothing is open."""
