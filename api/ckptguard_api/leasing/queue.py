"""The queue of validations: put in, found again, taken out."""

from typing import Any, Final

from sqlalchemy import Row

from ckptguard.errors import ConflictError
from ckptguard.model.policy import Depth
from ckptguard.model.service import (
    AttemptEnding,
    EventKind,
    Lifecycle,
    SupersededBy,
    ValidationReason,
    ValidationState,
)
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.claim_order import tier_of
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.tiers import set_tiers
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.file_results import delete_file_results
from ckptguard_api.repositories.leases import end_attempt_row, lock_lease_of
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.repositories.validations import (
    ValidationRow,
    change_validation,
    find_validation,
    insert_validation,
    lock_open,
    set_state,
)

_DEPTHS: Final = list(Depth)


def is_wanted(checkpoint: Row[Any]) -> bool:
    """Say whether a verdict on this checkpoint is of use to anybody.

    One that was rolled back keeps its bytes and may be asked for by step; one that was rewritten or
    deleted has none, and one that is still being saved, or never was to its end, has none yet.
    """
    is_rolled_back = checkpoint.superseded_by == SupersededBy.ROLLED_BACK.value
    is_complete = checkpoint.registered_at is not None
    return is_complete and (checkpoint.lifecycle == Lifecycle.REGISTERED.value or is_rolled_back)


def queue_validation(
    tx: Transaction, checkpoint: Row[Any], *, reason: ValidationReason, depth: Depth, actor: Actor
) -> tuple[ValidationRow, bool]:
    """Ask for a verdict on a checkpoint, whose run the caller has locked.

    Returns:
        The open validation, and whether it is new: asking again gives the one that is open. One that is
        still queued goes as deep as the deepest that was asked for, and is no retry or scrub any more
        where somebody asked.

    Raises:
        ConflictError: The checkpoint is not complete, or its bytes are gone.
    """
    if not is_wanted(checkpoint):
        msg = f"nothing to validate: the checkpoint is {checkpoint.lifecycle}"
        raise ConflictError(msg)
    there = lock_open(tx, checkpoint.id)
    if there is not None:
        return _asked_again(tx, there, reason=reason, depth=depth, actor=actor), False
    row = insert_validation(tx, checkpoint, reason=reason, depth=depth.value, requested_by=actor.name)
    _record_queued(tx, row, actor=actor)
    return _current(tx, row), True


def cancel_open(tx: Transaction, checkpoint_id: int, *, why: str, actor: Actor) -> None:
    """Take back what is queued or running for a checkpoint that nobody wants judged any more.

    The caller has locked its run. A running attempt learns it at its next heartbeat; its lease ends here.
    """
    row = lock_open(tx, checkpoint_id)
    if row is None:
        return
    lease = lock_lease_of(tx, row.id)
    if lease is not None:
        end_attempt_row(tx, lease, ending=AttemptEnding.CANCELLED, reason=why, is_counted=False)
    set_state(tx, row, ValidationState.CANCELLED, finished_at=tx.now, waited_until=None)
    delete_file_results(tx, row.id)
    set_tiers(tx, row.run_id)
    touch_run(tx, row.run_id)
    record(tx, EventKind.VALIDATION_CANCELLED, actor=actor, about=subject_of(row), data={"why": why})


def subject_of(validation: ValidationRow) -> Subject:
    """Return what an event about this validation is about."""
    return Subject(
        project_id=validation.project_id,
        run_id=validation.run_id,
        checkpoint_id=validation.checkpoint_id,
        validation_id=validation.id,
    )


def _asked_again(
    tx: Transaction, row: ValidationRow, *, reason: ValidationReason, depth: Depth, actor: Actor
) -> ValidationRow:
    if row.state != ValidationState.QUEUED.value:
        return row
    is_deeper = _DEPTHS.index(depth) > _DEPTHS.index(Depth(row.depth))
    is_sooner = tier_of(reason) < tier_of(ValidationReason(row.reason))
    if not is_deeper and not is_sooner:
        return row
    change_validation(
        tx,
        row.id,
        depth=(depth if is_deeper else Depth(row.depth)).value,
        reason=reason.value if is_sooner else row.reason,
        tier=tier_of(reason).value if is_sooner else row.tier,
    )
    changed = _current(tx, row)
    _record_queued(tx, changed, actor=actor)
    return _current(tx, row)


def _record_queued(tx: Transaction, row: ValidationRow, *, actor: Actor) -> None:
    set_tiers(tx, row.run_id)
    touch_run(tx, row.run_id)
    data = {"reason": row.reason, "depth": row.depth}
    record(tx, EventKind.VALIDATION_QUEUED, actor=actor, about=subject_of(row), data=data)


def _current(tx: Transaction, row: ValidationRow) -> ValidationRow:
    current = find_validation(tx, row.id)
    assert current is not None  # noqa: S101 - locked by this transaction
    return current
