"""Validations: requests for a verdict, and the queue that they stand in."""

from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, insert, or_, select, text, update

from ckptguard.model.service import Lifecycle, ValidationReason, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.domain.claim_order import Tier, tier_of
from ckptguard_api.tables import checkpoints, validations

ValidationRow = Row[Any]
"""A row of `validations`, all columns."""

# Literals: SQLite uses a partial index only where the query says the index's condition, word for word.
IS_OPEN: Final = text("validations.state IN ('queued','running')")
IS_QUEUED: Final = text("validations.state IN ('queued','running') AND validations.state = 'queued'")

_LAST: Final = validations.alias("last")
LAST_DEPTH: Final = (
    select(_LAST.c.depth)
    .where(_LAST.c.checkpoint_id == checkpoints.c.id)
    .order_by(_LAST.c.id.desc())
    .limit(1)
    .correlate(checkpoints)
    .scalar_subquery()
)
"""Of a checkpoint in a query: what is asked again goes as deep as what was asked last."""


def find_validation(tx: Transaction, validation_id: int) -> ValidationRow | None:
    """Return the validation, or None."""
    return tx.execute(select(validations).where(validations.c.id == validation_id)).one_or_none()


def lock_validation(tx: Transaction, validation_id: int) -> ValidationRow:
    """Return the validation as it is now; its run and checkpoint are locked already."""
    statement = select(validations).where(validations.c.id == validation_id)
    return tx.execute(statement.with_for_update(key_share=True)).one()


def lock_open(tx: Transaction, checkpoint_id: int) -> ValidationRow | None:
    """Return the one that is queued or running for a checkpoint, or None."""
    statement = select(validations).where(validations.c.checkpoint_id == checkpoint_id, IS_OPEN)
    return tx.execute(statement.with_for_update(key_share=True)).one_or_none()


def find_checkpoint(tx: Transaction, checkpoint_id: int) -> Row[Any]:
    """Return the checkpoint of a validation; there is always one."""
    return tx.execute(select(checkpoints).where(checkpoints.c.id == checkpoint_id)).one()


def lock_checkpoint(tx: Transaction, checkpoint_id: int) -> Row[Any]:
    """Return the checkpoint as it is now; its run is locked already."""
    statement = select(checkpoints).where(checkpoints.c.id == checkpoint_id)
    return tx.execute(statement.with_for_update(key_share=True)).one()


def insert_validation(
    tx: Transaction, checkpoint: Row[Any], *, reason: ValidationReason, depth: str, requested_by: str
) -> ValidationRow:
    """Put a request at the end of the queue; nothing is left to be asked again by itself."""
    values = {
        "project_id": checkpoint.project_id,
        "run_id": checkpoint.run_id,
        "checkpoint_id": checkpoint.id,
        "store_id": checkpoint.store_id,
        "branch": checkpoint.branch,
        "step": checkpoint.step,
        "reason": reason.value,
        "depth": depth,
        "requested_by": requested_by,
        "requested_at": tx.now,
        "state": ValidationState.QUEUED.value,
        "tier": tier_of(reason).value,
        "attempts": 0,
        "counted_attempts": 0,
    }
    row = tx.execute(insert(validations).values(values).returning(validations)).one()
    opened = {"validation_state": ValidationState.QUEUED.value, "retry_at": None}
    tx.execute(update(checkpoints).where(checkpoints.c.id == checkpoint.id).values(opened))
    return row


def change_validation(tx: Transaction, validation_id: int, **values: object) -> None:
    """Set columns other than `state`."""
    tx.execute(update(validations).where(validations.c.id == validation_id).values(values))


def set_state(tx: Transaction, validation: ValidationRow, state: ValidationState, **values: object) -> None:
    """Set the state of a validation, and keep that of its checkpoint in step."""
    change_validation(tx, validation.id, state=state.value, **values)
    is_open = state in {ValidationState.QUEUED, ValidationState.RUNNING}
    set_checkpoint_state(tx, validation.checkpoint_id, state if is_open else None)


def set_checkpoint_state(tx: Transaction, checkpoint_id: int, state: ValidationState | None) -> None:
    """Say on the checkpoint whether a validation is queued or running."""
    value = state.value if state is not None else None
    tx.execute(update(checkpoints).where(checkpoints.c.id == checkpoint_id).values(validation_state=value))


def newest_open(tx: Transaction, run_id: int) -> ValidationRow | None:
    """Return the open validation of the newest checkpoint of a run, retries and scrubs left out."""
    newest = [
        tx.execute(
            select(validations)
            .where(validations.c.run_id == run_id, validations.c.tier == tier.value, IS_OPEN)
            .order_by(*newest_first())
            .limit(1)
        ).one_or_none()
        for tier in (Tier.NEWEST, Tier.OLDER)
    ]
    return max((row for row in newest if row is not None), key=_order, default=None)


def _order(row: ValidationRow) -> tuple[int, int, int]:
    return row.branch, row.step, row.checkpoint_id


def newest_first() -> tuple[ColumnElement[Any], ...]:
    """Return the order within a run, as the index `ix_validations_run_queue` has it."""
    return validations.c.branch.desc(), validations.c.step.desc(), validations.c.checkpoint_id.desc()


def is_protected_above(tx: Transaction, validation: ValidationRow) -> bool:
    """Say whether this checkpoint, or a newer one of its run, is VALID and may be used."""
    c = checkpoints.c
    is_newer = or_(
        c.branch > validation.branch,
        and_(c.branch == validation.branch, c.step > validation.step),
        and_(c.branch == validation.branch, c.step == validation.step, c.id >= validation.checkpoint_id),
    )
    statement = (
        select(c.id)
        .where(c.run_id == validation.run_id, c.verdict == Verdict.VALID.value, is_newer)
        .where(c.lifecycle == Lifecycle.REGISTERED.value, ~c.is_quarantined, ~c.is_suspect)
        .limit(1)
    )
    return tx.execute(statement).first() is not None


def set_newest(tx: Transaction, run_id: int, validation_id: int | None) -> None:
    """Let this one alone be the newest of its run."""
    v = validations.c
    others = update(validations).where(v.run_id == run_id, v.tier == Tier.NEWEST.value, IS_OPEN)
    if validation_id is not None:
        others = others.where(v.id != validation_id)
        change = update(validations).where(v.id == validation_id, v.tier == Tier.OLDER.value)
        tx.execute(change.values(tier=Tier.NEWEST.value))
    tx.execute(others.values(tier=Tier.OLDER.value))
