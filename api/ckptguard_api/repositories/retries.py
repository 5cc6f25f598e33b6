"""Checkpoints whose verdict time may change: which are asked for again, and how often they were."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, func, select, text

from ckptguard.model.service import ValidationReason
from ckptguard_api.database import Transaction
from ckptguard_api.repositories.validations import IS_OPEN, LAST_DEPTH
from ckptguard_api.tables import RETRIED, checkpoints, validations


def retries_in_a_row(tx: Transaction, checkpoint_id: int, *, limit: int) -> int:
    """Return how many of the last validations of a checkpoint the service asked for by itself.

    Args:
        tx: Of the verdict on the last of them.
        checkpoint_id: Whose.
        limit: Count no further; more makes no difference.
    """
    newest = (
        select(validations.c.reason)
        .where(validations.c.checkpoint_id == checkpoint_id)
        .order_by(validations.c.id.desc())
        .limit(limit)
    )
    reasons = list(tx.execute(newest).scalars())
    others = (at for at, reason in enumerate(reasons) if reason != ValidationReason.RETRY.value)
    return next(others, len(reasons))


def next_run_with_retries(tx: Transaction, *, after_id: int) -> int | None:
    """Return the next run, by id, of which some checkpoint is due; None: there is none."""
    c = checkpoints.c
    statement = select(c.run_id).where(text(RETRIED), c.run_id > after_id, c.retry_at <= tx.now)
    run_id: int | None = tx.execute(statement.order_by(c.run_id).limit(1)).scalar()
    return run_id


def count_open_retries(tx: Transaction, run_id: int) -> int:
    """Return how many retries of a run are queued or running."""
    v = validations.c
    statement = select(func.count()).select_from(validations)
    found = statement.where(IS_OPEN, v.run_id == run_id, v.reason == ValidationReason.RETRY.value)
    number: int = tx.execute(found).scalar_one()
    return number


def retries_due(tx: Transaction, run_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return checkpoints of a locked run that are due and for which nothing is open, newest first.

    Each with `last_depth`, how deep the last validation was to go.
    """
    c = checkpoints.c
    statement = (
        select(checkpoints, LAST_DEPTH.label("last_depth"))
        .where(text(RETRIED), c.run_id == run_id, c.retry_at <= tx.now, c.validation_state.is_(None))
        .order_by(c.branch.desc(), c.step.desc(), c.created_at.desc(), c.id.desc())
        .limit(limit)
    )
    return tx.execute(statement).all()
