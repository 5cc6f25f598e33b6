"""A note stands in the audit of a checkpoint, and changes nothing else."""

import pytest

from ckptguard.errors import InvalidRequestError, NotFoundError
from ckptguard.model.service import EventKind, Scope
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.use_cases.notes import MAX_NOTES_SHOWN, note_checkpoint, notes_of
from tests import service_rows as rows
from tests.served_app import ServedApp
from tests.started_run import Training


def note(training: Training, checkpoint_id: int, text: str) -> None:
    note_checkpoint(
        training.services,
        project_id=training.project_id,
        checkpoint_id=checkpoint_id,
        text=text,
        actor=SERVICE,
    )


def test_notes_are_read_newest_first_and_touch_no_resume_target(database: Database) -> None:
    training = Training(database=database)
    one, other = training.save(1), training.save(2)
    revision = training.run.revision
    for number in range(MAX_NOTES_SHOWN + 1):
        note(training, one, f" note {number}\r\nof two lines ")
    note(training, other, "about another")
    found = notes_of(training.services, project_id=training.project_id, checkpoint_id=one)
    assert [row.data["text"] for row in found] == [
        f"note {number}\nof two lines" for number in range(MAX_NOTES_SHOWN, 0, -1)
    ]
    assert training.run.revision == revision


@pytest.mark.parametrize("text", ["", " \n ", "x" * 4001, "\x1b[2J", "turn\u202earound", "half \ud800"])
def test_what_cannot_be_kept_is_refused(database: Database, text: str) -> None:
    training = Training(database=database)
    saved = training.save(1)
    with pytest.raises(InvalidRequestError):
        note(training, saved, text)
    assert notes_of(training.services, project_id=training.project_id, checkpoint_id=saved) == []


def test_a_checkpoint_of_another_project_takes_no_note(database: Database) -> None:
    training = Training(database=database)
    with database.write() as tx:
        other = rows.add_project(tx, "other")
        store, run = rows.add_store(tx, other), rows.add_run(tx, other)
        foreign = rows.add_checkpoint(tx, run, store, step=1)
    with pytest.raises(NotFoundError):
        note(training, foreign, "mine?")
    with pytest.raises(NotFoundError):
        notes_of(training.services, project_id=training.project_id, checkpoint_id=foreign)


def test_the_route_answers_with_the_event(served: ServedApp) -> None:
    with served.services.database.write() as tx:
        store, run = rows.add_store(tx, 1), rows.add_run(tx, 1)
        saved = rows.add_checkpoint(tx, run, store, step=1)
    answer = served.client().post(f"/v1/checkpoints/{saved}/notes", json={"text": "loss spike\nlater"})
    assert answer.status_code == 201
    value = answer.json()
    assert (value["checkpoint_id"], value["text"]) == (saved, "loss spike\nlater")
    (event,) = served.client().get(f"/v1/events?kind={EventKind.CHECKPOINT_NOTED}").json()["items"]
    assert (event["id"], event["data"]) == (value["id"], {"text": "loss spike\nlater"})
    refused = served.client(Scope.READ).post(f"/v1/checkpoints/{saved}/notes", json={"text": "no"})
    assert refused.status_code == 403
