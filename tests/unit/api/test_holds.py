"""What an operator says about a checkpoint needs a reason, and stands in the audit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ckptguard.errors import ConflictError, InvalidRequestError, NotFoundError
from ckptguard.model.policy import Depth
from ckptguard.model.service import EventKind, Hold, Lifecycle, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.tables import validations
from ckptguard_api.use_cases.deletions import mark_deleted
from ckptguard_api.use_cases.holds import Releasable, hold_checkpoint, release_checkpoint
from ckptguard_api.use_cases.revalidate import request_validation
from tests import service_rows as rows
from tests.databases import fresh_database
from tests.started_run import Training


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with fresh_database("memory", folder=tmp_path) as database:
        yield Training(database=database)


def _hold(training: Training, checkpoint_id: int, hold: Hold, reason: str = "why not") -> None:
    hold_checkpoint(
        training.services,
        project_id=training.project_id,
        checkpoint_id=checkpoint_id,
        hold=hold,
        reason=reason,
        actor=SERVICE,
    )


def _release(training: Training, checkpoint_id: int, what: Releasable | None = None) -> None:
    release_checkpoint(
        training.services,
        project_id=training.project_id,
        checkpoint_id=checkpoint_id,
        what=what,
        reason="looked at it",
        actor=SERVICE,
    )


def _delete(training: Training, checkpoint_id: int) -> None:
    mark_deleted(
        training.services,
        project_id=training.project_id,
        checkpoint_id=checkpoint_id,
        reason="retention",
        actor=SERVICE,
    )


@pytest.mark.parametrize("hold", [Hold.PINNED, Hold.QUARANTINED])
def test_a_hold_is_set_once_with_its_reason_and_raises_the_revision(training: Training, hold: Hold) -> None:
    saved = training.save(1)
    before = training.run.revision
    _hold(training, saved, hold, reason=" first ")
    _hold(training, saved, hold, reason="second")
    (event,) = training.events(EventKind.CHECKPOINT_HELD)
    assert (event.checkpoint_id, event.data) == (saved, {"hold": hold.value, "reason": "first"})
    assert training.run.revision == before + 1


@pytest.mark.parametrize(
    "reason", ["", "   ", "x" * 1001, "a\x1b[2J", "a\nb", "a\x00", "\u202eevil", "\ud800", "a\u2028b"]
)
def test_a_reason_that_would_spoil_the_audit_is_refused(training: Training, reason: str) -> None:
    saved = training.save(1)
    with pytest.raises(InvalidRequestError) as caught:
        _hold(training, saved, Hold.PINNED, reason=reason)
    assert caught.value.problems
    assert not training.row(saved).is_pinned
    assert training.events(EventKind.CHECKPOINT_HELD) == []


def test_release_lifts_the_named_hold_only(training: Training) -> None:
    saved = training.save(1, is_pinned=True, is_quarantined=True)
    _release(training, saved, Releasable.QUARANTINED)
    assert (training.row(saved).is_pinned, training.row(saved).is_quarantined) == (True, False)
    (event,) = training.events(EventKind.CHECKPOINT_RELEASED)
    assert event.data == {"holds": ["quarantined"], "reason": "looked at it"}


def test_release_without_a_name_lifts_all_and_again_does_nothing(training: Training) -> None:
    saved = training.save(1, is_pinned=True, is_quarantined=True, is_suspect=True)
    _release(training, saved)
    _release(training, saved)
    row = training.row(saved)
    assert {row.is_pinned, row.is_quarantined, row.is_suspect} == {False}
    (event,) = training.events(EventKind.CHECKPOINT_RELEASED)
    assert event.data["holds"] == ["pinned", "quarantined", "suspect"]


def test_release_without_a_name_never_lifts_damage(training: Training) -> None:
    saved = training.save(1, verdict=Verdict.INVALID, is_pinned=True)
    _release(training, saved)
    assert training.row(saved).verdict == "INVALID"


def test_damage_is_not_lifted_without_a_second_worker(training: Training) -> None:
    saved = training.save(1, verdict=Verdict.INVALID)
    with pytest.raises(ConflictError, match="another worker"):
        _release(training, saved, Releasable.DAMAGE)
    assert training.row(saved).verdict == "INVALID"


def test_a_pinned_checkpoint_is_not_deleted(training: Training) -> None:
    saved = training.save(1, is_pinned=True)
    with pytest.raises(ConflictError, match="release it first"):
        _delete(training, saved)
    assert training.row(saved).lifecycle == "registered"


def test_deleting_cancels_what_is_queued_and_is_told_once(training: Training) -> None:
    saved = training.save(1, verdict=None)
    with training.database.write() as tx:
        rows.add_validation(tx, saved)
    _delete(training, saved)
    _delete(training, saved)
    assert (training.row(saved).lifecycle, training.row(saved).validation_state) == ("deleted", None)
    with training.database.read() as tx:
        assert tx.execute(select(validations.c.state)).scalar_one() == ValidationState.CANCELLED
    (event,) = training.events(EventKind.CHECKPOINT_DELETED)
    assert event.data == {"reason": "retention"}
    with pytest.raises(ConflictError, match="deleted"):
        _hold(training, saved, Hold.PINNED)


def test_asking_for_a_verdict_twice_gives_one_validation(training: Training) -> None:
    saved = training.save(1)
    asked = [
        request_validation(
            training.services,
            project_id=training.project_id,
            checkpoint_id=saved,
            depth=Depth.LOAD,
            reason="a node burned",
            actor=SERVICE,
        )
        for _ in range(2)
    ]
    assert [is_new for _, is_new in asked] == [True, False]
    assert asked[0][0].id == asked[1][0].id
    told = training.events(EventKind.VALIDATION_REQUESTED)
    assert [event.data["is_new"] for event in told] == [True, False]
    assert {event.data["reason"] for event in told} == {"a node burned"}


@pytest.mark.parametrize(
    "told",
    [
        {"lifecycle": Lifecycle.DELETED},
        {"lifecycle": Lifecycle.SUPERSEDED, "superseded_by": "rewritten"},
        {"lifecycle": Lifecycle.SUPERSEDED, "superseded_by": "rolled_back", "registered_at": None},
    ],
    ids=["deleted", "rewritten", "never complete"],
)
def test_what_is_gone_or_was_never_there_is_not_validated(training: Training, told: dict[str, Any]) -> None:
    saved = training.save(1, **told)
    with pytest.raises(ConflictError):
        request_validation(
            training.services,
            project_id=training.project_id,
            checkpoint_id=saved,
            depth=Depth.LOAD,
            reason=None,
            actor=SERVICE,
        )


def test_a_checkpoint_of_another_project_is_none(training: Training) -> None:
    saved = training.save(1)
    with training.database.write() as tx:
        training.project_id = rows.add_project(tx, "other")
    with pytest.raises(NotFoundError):
        _hold(training, saved, Hold.PINNED)
    with pytest.raises(NotFoundError):
        _release(training, saved)
    with pytest.raises(NotFoundError):
        _delete(training, saved)
    assert not training.row(saved).is_pinned
