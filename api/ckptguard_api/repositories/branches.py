"""Branches of a run, and the checkpoints that a rollback moves."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import Row, insert, or_, select, update

from ckptguard.model.service import Lifecycle, SupersededBy
from ckptguard_api.database import Transaction
from ckptguard_api.domain.branches import Place
from ckptguard_api.tables import branches, checkpoints

_CHUNK: Final = 500
_ROLLED_BACK: Final = (
    checkpoints.c.lifecycle == Lifecycle.SUPERSEDED.value,
    checkpoints.c.superseded_by == SupersededBy.ROLLED_BACK.value,
)
_LIVE: Final = checkpoints.c.lifecycle.in_(
    [Lifecycle.ANNOUNCED.value, Lifecycle.REGISTERED.value, Lifecycle.INCOMPLETE.value]
)


def add_branch(
    tx: Transaction,
    *,
    run_id: int,
    number: int,
    opened_by: str,
    from_checkpoint: Row[Any] | None = None,
) -> None:
    """Add one branch; without a checkpoint it starts from nothing."""
    values = {
        "run_id": run_id,
        "number": number,
        "from_checkpoint_id": None if from_checkpoint is None else from_checkpoint.id,
        "from_step": None if from_checkpoint is None else from_checkpoint.step,
        "opened_at": tx.now,
        "opened_by": opened_by,
    }
    tx.execute(insert(branches).values(values))


def find_branch(tx: Transaction, run_id: int, number: int) -> Row[Any] | None:
    """Return one branch of a run, or None."""
    statement = select(branches).where(branches.c.run_id == run_id, branches.c.number == number)
    return tx.execute(statement).one_or_none()


def origin_of(tx: Transaction, run_id: int, number: int) -> Row[Any] | None:
    """Return the checkpoint that a branch was opened from, all columns; None: it was opened from nothing."""
    opened = checkpoints.join(branches, branches.c.from_checkpoint_id == checkpoints.c.id)
    is_this = (branches.c.run_id == run_id) & (branches.c.number == number)
    return tx.execute(select(checkpoints).select_from(opened).where(is_this)).one_or_none()


def is_empty(tx: Transaction, run_id: int, branch: int) -> bool:
    """Say whether nothing was announced or registered in a branch yet."""
    statement = select(checkpoints.c.id).where(checkpoints.c.run_id == run_id, checkpoints.c.branch == branch)
    return tx.execute(statement.limit(1)).one_or_none() is None


def origins_of(tx: Transaction, run_id: int) -> dict[int, Place | None]:
    """Return where each branch of a run was opened from; None: from nothing."""
    statement = (
        select(branches.c.number, checkpoints.c.branch, branches.c.from_step)
        .outerjoin(checkpoints, checkpoints.c.id == branches.c.from_checkpoint_id)
        .where(branches.c.run_id == run_id)
    )
    return {
        row.number: None if row.branch is None else Place(branch=row.branch, step=row.from_step)
        for row in tx.execute(statement)
    }


def live_checkpoints(
    tx: Transaction, run_id: int, *, after: Place | None = None, limit: int | None = None
) -> Sequence[Row[Any]]:
    """Return id, branch and step of the live checkpoints of a run.

    Args:
        tx: Where.
        run_id: Of which run.
        after: Only those of a later branch, or of a later step in any; None: all.
        limit: How many at most; None: all.
    """
    statement = select(checkpoints.c.id, checkpoints.c.branch, checkpoints.c.step)
    statement = statement.where(checkpoints.c.run_id == run_id, _LIVE)
    if after is not None:
        later = or_(checkpoints.c.branch > after.branch, checkpoints.c.step > after.step)
        statement = statement.where(later)
    return tx.execute(statement.order_by(checkpoints.c.id).limit(limit)).all()


def rolled_back_checkpoints(tx: Transaction, run_id: int) -> Sequence[Row[Any]]:
    """Return id, branch and step of the rolled-back checkpoints of a run."""
    statement = select(checkpoints.c.id, checkpoints.c.branch, checkpoints.c.step)
    return tx.execute(statement.where(checkpoints.c.run_id == run_id, *_ROLLED_BACK)).all()


def roll_back(tx: Transaction, ids: Iterable[int]) -> None:
    """Mark live checkpoints as superseded because the run went another way; their bytes stay."""
    values = {
        "lifecycle": Lifecycle.SUPERSEDED.value,
        "superseded_by": SupersededBy.ROLLED_BACK.value,
        "gone_at": tx.now,
        "keep_alive_until": None,
    }
    for chunk in _chunks(ids):
        tx.execute(update(checkpoints).where(checkpoints.c.id.in_(chunk)).values(values))


def restore(tx: Transaction, ids: Iterable[int]) -> None:
    """Make rolled-back checkpoints live again; what was never complete is incomplete."""
    for chunk in _chunks(ids):
        found = update(checkpoints).where(checkpoints.c.id.in_(chunk), *_ROLLED_BACK)
        complete = checkpoints.c.registered_at.is_not(None)
        incomplete = checkpoints.c.registered_at.is_(None)
        back = {"superseded_by": None, "gone_at": None}
        # The second statement no longer finds what the first restored.
        tx.execute(found.where(complete).values(lifecycle=Lifecycle.REGISTERED.value, **back))
        tx.execute(found.where(incomplete).values(lifecycle=Lifecycle.INCOMPLETE.value, **back))


def _chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    remaining = iter(ids)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
