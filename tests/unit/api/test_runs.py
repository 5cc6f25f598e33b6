"""Runs: made once, changed with a trace, and shown with what a failure now would cost."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ckptguard.errors import ConflictError, InvalidRequestError, NotFoundError
from ckptguard.model.service import EventKind, Lifecycle
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.run_policy import RunPolicy, run_name_problems
from ckptguard_api.use_cases.runs import RunOverview, change_run, create_run, list_runs, show_run
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.started_run import Training


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with fresh_database("memory", folder=tmp_path) as database:
        yield Training(database=database)


def _create(training: Training, name: str, **policy: Any) -> tuple[RunOverview, bool]:  # noqa: ANN401 - of a policy
    return create_run(
        training.services,
        project_id=training.project_id,
        name=name,
        policy=RunPolicy(**policy),
        actor=SERVICE,
    )


def _change(training: Training, **changes: Any) -> RunOverview:  # noqa: ANN401 - of a policy
    return change_run(
        training.services,
        project_id=training.project_id,
        name="run-7",
        changes=changes,
        actor=SERVICE,
    )


def _show(training: Training) -> RunOverview:
    return show_run(training.services, project_id=training.project_id, name="run-7")


def test_the_same_run_twice_is_one_and_another_policy_is_a_conflict(training: Training) -> None:
    assert _create(training, "new", gpus=8)[1]
    assert not _create(training, "new", gpus=8)[1]
    with pytest.raises(ConflictError) as caught:
        _create(training, "new", gpus=16, min_steps=5)
    assert caught.value.problems == ("/gpus: 8 there, 16 asked", "/min_steps: 20 there, 5 asked")
    (event,) = training.events(EventKind.RUN_CREATED)
    assert event.data["policy"]["gpus"] == 8


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\x07b", "x" * 257, "\ud800", "a\u2028b"])
def test_a_name_that_means_something_else_somewhere_is_refused(training: Training, name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _create(training, name)
    assert caught.value.problems == tuple(run_name_problems(name)) != ()


@pytest.mark.parametrize("name", ["llama 3.1 (β)", "run:7", "-", "...", "x" * 256])
def test_other_names_are_kept_as_they_are(training: Training, name: str) -> None:
    assert _create(training, name)[0].row.name == name


def test_a_change_of_policy_says_from_what_to_what(training: Training) -> None:
    revision = training.run.revision
    changed = _change(training, min_assurance=Assurance.CONTENT, gpus=8, min_steps=20)
    assert (changed.row.min_assurance, changed.row.gpus) == ("content", 8)
    (event,) = training.events(EventKind.RUN_CHANGED)
    assert event.data["changes"] == {
        "min_assurance": {"from": "loaded", "to": "content"},
        "gpus": {"from": None, "to": 8},
    }
    assert training.run.revision == revision + 1
    _change(training, gpus=8)
    assert training.run.revision == revision + 1
    assert _change(training, gpus=None).row.gpus is None


def test_every_problem_of_a_policy_is_listed(training: Training) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _change(
            training,
            gpus=0,
            usd_per_gpu_hour=float("nan"),
            unprotected_after_s=-1.0,
            min_steps=-1,
            required_fqns=("ok", ""),
        )
    pointers = [problem.partition(":")[0] for problem in caught.value.problems]
    assert pointers == [
        "/required_fqns/1",
        "/gpus",
        "/usd_per_gpu_hour",
        "/unprotected_after_s",
        "/min_steps",
    ]
    assert training.run.min_steps == 20


def test_the_overview_counts_and_prices(database: Database) -> None:
    training = Training(database=database)
    _change(training, gpus=8000, usd_per_gpu_hour=3.0)
    with database.read() as tx:
        now = tx.now
    good = training.save(100, created_at=now - timedelta(hours=6))
    training.save(200, assurance=Assurance.CONTENT, created_at=now - timedelta(hours=5))
    training.save(300, is_quarantined=True, created_at=now - timedelta(hours=4))
    training.save(400, verdict=Verdict.INVALID, created_at=now - timedelta(hours=3))
    training.save(450, lifecycle=Lifecycle.SUPERSEDED, superseded_by="rolled_back")
    newest = training.save(500, verdict=None, lifecycle=Lifecycle.ANNOUNCED)
    training.save(600, lifecycle=Lifecycle.DELETED)
    with database.write() as tx:
        rows.add_validation(tx, newest)
    overview = _show(training)
    assert overview.counts.verdicts == {"VALID": 4, "INVALID": 1, "none": 1}
    assert overview.counts.lifecycles == {"registered": 4, "superseded": 1, "announced": 1, "deleted": 1}
    assert overview.counts.open_validations == 1
    assert overview.newest is not None
    assert overview.newest_valid is not None
    assert (overview.newest.id, overview.newest_valid.id) == (newest, good)
    assert overview.exposure.steps == 400
    assert overview.exposure.usd == pytest.approx(144_000, abs=100)


def test_the_runs_minimum_decides_which_is_the_newest_valid(training: Training) -> None:
    training.save(100)
    content = training.save(200, assurance=Assurance.CONTENT)
    overview = _change(training, min_assurance=Assurance.CONTENT)
    assert overview.newest_valid is not None
    assert overview.newest_valid.id == content
    proven = _change(training, min_provenance=Provenance.PROVEN)
    assert proven.newest_valid is None


def test_a_run_without_checkpoints_shows_nothing_rather_than_zero(training: Training) -> None:
    overview = _show(training)
    assert (overview.newest, overview.newest_valid, overview.exposure.seconds) == (None, None, None)
    assert overview.counts.verdicts == {}


def test_runs_are_paged_by_name_and_those_of_other_projects_are_none(database: Database) -> None:
    training = Training(database=database)
    with database.write() as tx:
        other = rows.add_project(tx, "other")
        rows.add_run(tx, other, "secret")
    for number in range(6):
        _create(training, f"a{number}")
    names: list[str] = []
    cursor = None
    while True:
        page = list_runs(training.services, project_id=training.project_id, cursor=cursor, limit=3)
        names += [overview.row.name for overview in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert names == ["run-7", "a5", "a4", "a3", "a2", "a1", "a0"]
    with pytest.raises(NotFoundError):
        show_run(training.services, project_id=training.project_id, name="secret")
