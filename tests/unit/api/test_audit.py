"""The audit is filtered the same way on both databases, and tells nobody of what is not theirs."""

from dataclasses import replace
from typing import Any

import pytest

from ckptguard.errors import ForbiddenError, InvalidRequestError, NotFoundError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE, Actor
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories.events import record
from ckptguard_api.use_cases.audit import AuditFilter, all_audit, list_audit
from tests.started_run import Training

ACTORS = ("token:Trainer (ckg_ab12)", "token:trainer (ckg_cd34)", "100%_sure", "service")


def tell(training: Training) -> tuple[int, int]:
    """Record a note by each actor about one checkpoint, a token of nobody's project, and return both ids."""
    saved = training.save(7)
    about = Subject(project_id=training.project_id, run_id=training.run_id, checkpoint_id=saved)
    with training.database.write() as tx:
        for number, name in enumerate(ACTORS):
            actor = replace(SERVICE, name=name)
            record(tx, EventKind.CHECKPOINT_NOTED, actor=actor, about=about, data={"text": str(number)})
        record(tx, EventKind.CHECKPOINT_HELD, about=about, data={"hold": "pinned", "reason": "r"})
        record(tx, EventKind.TOKEN_CREATED, data={"name": "n", "hint": "h"})
    return saved, training.run_id


def found(training: Training, *, by: Actor = SERVICE, limit: int = 3, **wanted: Any) -> list[Any]:  # noqa: ANN401 - of the filter
    """Return what passes, read page by page."""
    rows: list[Any] = []
    cursor: str | None = None
    while True:
        page = list_audit(
            training.services,
            project_id=training.project_id,
            wanted=AuditFilter(**wanted),
            by=by,
            cursor=cursor,
            limit=limit,
        )
        rows += page.items
        cursor = page.next
        if cursor is None:
            return rows


@pytest.mark.parametrize(
    ("part", "actors"),
    [
        ("token:", ACTORS[:2]),
        ("rainer", ACTORS[:2]),
        ("trainer", ACTORS[1:2]),
        ("TOKEN", ()),
        ("%_", ACTORS[2:3]),
        ("_", (*ACTORS[:2], ACTORS[2])),
    ],
)
def test_a_part_of_a_name_is_looked_for_letter_by_letter(
    database: Database, part: str, actors: tuple[str, ...]
) -> None:
    training = Training(database=database)
    tell(training)
    rows = found(training, actor=part)
    assert [row.actor for row in rows] == list(reversed(actors))


def test_filters_are_held_together_and_rows_name_run_and_step(database: Database) -> None:
    training = Training(database=database)
    saved, _ = tell(training)
    rows = found(training, run="run-7", checkpoint_id=saved, kind=EventKind.CHECKPOINT_NOTED)
    assert [row.data["text"] for row in rows] == ["3", "2", "1", "0"]
    assert {(row.run, row.step, row.checkpoint_id) for row in rows} == {("run-7", 7, saved)}
    assert found(training, checkpoint_id=saved + 1) == []


def test_what_belongs_to_no_project_is_a_list_of_its_own(database: Database) -> None:
    training = Training(database=database)
    tell(training)
    assert [row.kind for row in found(training, is_of_service=True)] == ["token.created"]
    assert "token.created" not in [row.kind for row in found(training)]
    with pytest.raises(ForbiddenError):
        found(training, is_of_service=True, by=replace(SERVICE, project_id=training.project_id))


def test_a_run_that_is_none_and_a_cursor_of_other_filters_are_refused(database: Database) -> None:
    training = Training(database=database)
    tell(training)
    with pytest.raises(NotFoundError):
        found(training, run="none")
    about: dict[str, Any] = {"project_id": training.project_id, "by": SERVICE, "limit": 1}
    page = list_audit(training.services, wanted=AuditFilter(), cursor=None, **about)
    with pytest.raises(InvalidRequestError):
        list_audit(training.services, wanted=AuditFilter(actor="x"), cursor=page.next, **about)


def test_a_file_ends_at_its_bound(database: Database) -> None:
    training = Training(database=database)
    tell(training)
    about: dict[str, Any] = {"project_id": training.project_id, "by": SERVICE, "wanted": AuditFilter()}
    everything = [row.id for row in all_audit(training.services, limit=1000, **about)]
    assert len(everything) >= len(ACTORS) + 1
    assert [row.id for row in all_audit(training.services, limit=2, **about)] == everything[:2]
