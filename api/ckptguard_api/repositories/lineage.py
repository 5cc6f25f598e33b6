"""What came of a checkpoint: starts from it, branches that began at it, its neighbours in the run."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, func, select, tuple_

from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Transaction
from ckptguard_api.repositories.checkpoint_list import CheckpointRow
from ckptguard_api.repositories.run_overview import NEWEST_FIRST, RUN_ORDER, place_of
from ckptguard_api.tables import branches, checkpoints, restarts

MAX_COUNTED: Final = 10_000
"""Saves of a branch that are counted; more are told as more."""


def restarts_from(tx: Transaction, checkpoint_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return the reports of starts from a checkpoint, newest first."""
    statement = select(restarts).where(restarts.c.checkpoint_id == checkpoint_id)
    return tx.execute(statement.order_by(restarts.c.id.desc()).limit(limit)).all()


def branches_from(tx: Transaction, run_id: int, checkpoint_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return the branches that were opened from a checkpoint, newest first."""
    statement = (
        select(branches)
        .where(branches.c.run_id == run_id, branches.c.from_checkpoint_id == checkpoint_id)
        .order_by(branches.c.number.desc())
        .limit(limit)
    )
    return tx.execute(statement).all()


def saves_in(tx: Transaction, run_id: int, branch: int) -> int:
    """Count the checkpoints of a branch, up to `MAX_COUNTED`."""
    some = (
        select(checkpoints.c.id)
        .where(checkpoints.c.run_id == run_id, checkpoints.c.branch == branch)
        .limit(MAX_COUNTED)
        .subquery()
    )
    number: int = tx.execute(select(func.count()).select_from(some)).scalar_one()
    return number


def earlier_valid(tx: Transaction, row: CheckpointRow) -> int | None:
    """Return the id of the newest VALID checkpoint of the run before this one, in the run's order."""
    statement = (
        select(checkpoints.c.id)
        .where(
            checkpoints.c.run_id == row.run_id,
            checkpoints.c.verdict == Verdict.VALID.value,
            tuple_(*RUN_ORDER) < place_of(row),
        )
        .order_by(*NEWEST_FIRST)
        .limit(1)
    )
    found: int | None = tx.execute(statement).scalar_one_or_none()
    return found


def neighbours(tx: Transaction, row: CheckpointRow, *, limit: int) -> Sequence[Row[Any]]:
    """Return checkpoints of the run around this one, newest first: up to `limit` before, and after.

    Each has id, branch, step, save_id, created_at, verdict, assurance, basis and lifecycle.
    """
    c = checkpoints.c
    columns = (c.id, c.branch, c.step, c.save_id, c.created_at, c.verdict, c.assurance, c.basis, c.lifecycle)
    of_run = select(*columns).where(c.run_id == row.run_id)
    key = tuple_(*RUN_ORDER)
    before = of_run.where(key < place_of(row)).order_by(*NEWEST_FIRST).limit(limit)
    after = of_run.where(key > place_of(row)).order_by(*RUN_ORDER).limit(limit)
    return [*tx.execute(after).all()[::-1], *tx.execute(before)]
