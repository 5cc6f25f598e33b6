"""Checkpoints: written, and found by key or by place. Lists are in `checkpoint_list`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, insert, select, text, update

from ckptguard.model.service import Lifecycle, SupersededBy
from ckptguard_api.database import Transaction
from ckptguard_api.domain.locations import ancestors_of, range_below
from ckptguard_api.tables import STANDING, checkpoints, validations

CheckpointRow = Row[Any]
"""A row of `checkpoints`, all columns."""

_IS_STANDING: Final = text(f"({STANDING})")  # word for word, or the partial index is not used
_NOTHING_KNOWN: Final = {"is_pinned": False, "is_quarantined": False, "is_suspect": False}


def find_by_key(tx: Transaction, *, run_id: int, step: int, save_id: str) -> CheckpointRow | None:
    """Return the checkpoint of a natural key, or None."""
    c = checkpoints.c
    statement = select(checkpoints).where(c.run_id == run_id, c.step == step, c.save_id == save_id)
    return tx.execute(statement).one_or_none()


def add_checkpoint(tx: Transaction, values: Mapping[str, Any]) -> CheckpointRow:
    """Add a checkpoint without verdict, holds and validation."""
    return tx.execute(insert(checkpoints).values({**_NOTHING_KNOWN, **values}).returning(checkpoints)).one()


def change_checkpoint(tx: Transaction, checkpoint_id: int, values: Mapping[str, Any]) -> CheckpointRow:
    """Set columns, and return the row as it is then."""
    statement = update(checkpoints).where(checkpoints.c.id == checkpoint_id).values(dict(values))
    return tx.execute(statement.returning(checkpoints)).one()


def standing_in(tx: Transaction, project_id: int, location: str, *, limit: int) -> Sequence[CheckpointRow]:
    """Return what stands at a location of this project, above it and below it, in no order.

    Cost: index lookups, one for each folder above, and one range; of what was rewritten before, nothing is
    looked at.
    """
    c = checkpoints.c
    low, high = range_below(location)
    places = (c.location.in_([location, *ancestors_of(location)]), (c.location >= low) & (c.location < high))
    found: list[CheckpointRow] = []
    for is_there in places:  # apart: of an OR of both, SQLite makes a scan
        statement = select(checkpoints).where(c.project_id == project_id, is_there, _IS_STANDING)
        found.extend(tx.execute(statement.limit(limit - len(found))))
    return found


def find_complete_at(tx: Transaction, *, run_id: int, step: int, location: str) -> CheckpointRow | None:
    """Return the newest complete checkpoint of a step that stands exactly here, or None."""
    c = checkpoints.c
    statement = (
        select(checkpoints)
        .where(c.run_id == run_id, c.step == step, c.location == location)
        .where(c.registered_at.is_not(None), _IS_STANDING)
    )
    return tx.execute(statement.order_by(c.id.desc()).limit(1)).one_or_none()


def supersede_rewritten(tx: Transaction, ids: Sequence[int]) -> Sequence[CheckpointRow]:
    """Say of what still stands that its bytes were, or will be, overwritten; return the rows changed."""
    values = {
        "lifecycle": Lifecycle.SUPERSEDED.value,
        "superseded_by": SupersededBy.REWRITTEN.value,
        "gone_at": tx.now,
        "keep_alive_until": None,
    }
    statement = update(checkpoints).where(checkpoints.c.id.in_(ids), _IS_STANDING).values(values)
    return sorted(tx.execute(statement.returning(checkpoints)), key=lambda row: row.id)


def highest_complete(tx: Transaction, run_id: int, branch: int, *, but_id: int) -> CheckpointRow | None:
    """Return the complete checkpoint of the highest step of a branch, another one than this, or None."""
    c = checkpoints.c
    statement = (
        select(checkpoints)
        .where(c.run_id == run_id, c.branch == branch, c.registered_at.is_not(None), c.id != but_id)
        .order_by(c.branch.desc(), c.step.desc(), c.created_at.desc(), c.id.desc())
    )
    return tx.execute(statement.limit(1)).one_or_none()


def newest_validation(tx: Transaction, checkpoint_id: int) -> Row[Any] | None:
    """Return the validation asked for last, or None."""
    statement = select(validations).where(validations.c.checkpoint_id == checkpoint_id)
    return tx.execute(statement.order_by(validations.c.id.desc()).limit(1)).one_or_none()


def overdue_announcements(tx: Transaction, *, limit: int) -> Sequence[CheckpointRow]:
    """Return what was to be kept alive until now, and was not; longest overdue first."""
    return tx.execute(
        select(checkpoints)
        .where(_is_overdue(tx.now))
        .order_by(checkpoints.c.keep_alive_until, checkpoints.c.id)
        .limit(limit)
    ).all()


def mark_incomplete_rows(tx: Transaction, ids: Sequence[int]) -> Sequence[CheckpointRow]:
    """Say of those that are still overdue that nothing was heard of them; return the rows changed."""
    values = {"lifecycle": Lifecycle.INCOMPLETE.value, "keep_alive_until": None}
    statement = update(checkpoints).where(checkpoints.c.id.in_(ids), _is_overdue(tx.now)).values(values)
    return sorted(tx.execute(statement.returning(checkpoints)), key=lambda row: row.id)


def _is_overdue(now: datetime) -> ColumnElement[bool]:
    c = checkpoints.c
    return (c.keep_alive_until <= now) & (c.lifecycle == Lifecycle.ANNOUNCED.value)
