"""Where a run goes on: a branch is opened, and what is not on the way to it is rolled back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, update

from ckptguard.errors import ConflictError
from ckptguard.model.manifest_laws import MAX_INTEGER
from ckptguard.model.service import EventKind, Lifecycle, SupersededBy
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.branches import Place, is_on_the_way, lineage_of
from ckptguard_api.domain.fact import Fact
from ckptguard_api.domain.subject import Subject
from ckptguard_api.repositories import branches
from ckptguard_api.repositories.runs import RunRow
from ckptguard_api.tables import runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Where a run goes on.

    Args:
        branch: Its current one.
        is_opened: It was opened for this; else one that was opened before from there is still empty.
        facts: To be told when nothing is changed any more.
    """

    branch: int
    is_opened: bool
    facts: tuple[Fact, ...]


def continue_from(tx: Transaction, run: RunRow, checkpoint: Row[Any] | None, *, actor: Actor) -> Continuation:
    """Let a run go on from a checkpoint, or from nothing; the caller has locked the run.

    Live are afterwards the checkpoints on the way to it. A checkpoint that was rolled back becomes live
    again, and so do those that led to it.

    Raises:
        ConflictError: There is nothing to start from: not complete, deleted or overwritten.
    """
    if checkpoint is not None:
        _require_bytes(checkpoint)
    is_opened = not _is_open_already(tx, run, checkpoint)
    branch = run.branch + 1 if is_opened else run.branch
    if is_opened:
        branches.add_branch(
            tx, run_id=run.id, number=branch, opened_by=actor.name, from_checkpoint=checkpoint
        )
    changes = {"branch": branch, "step_went_back_at": None}
    tx.execute(update(runs).where(runs.c.id == run.id).values(changes))
    facts = rewind(tx, run, checkpoint)
    if is_opened:
        facts = (*facts, _branched(run, checkpoint, branch, facts))
    return Continuation(branch=branch, is_opened=is_opened, facts=facts)


def rewind(tx: Transaction, run: RunRow, checkpoint: Row[Any] | None) -> tuple[Fact, ...]:
    """Roll back what is not on the way to a checkpoint, restore what is; return what is to be told.

    Open validations stay: a rolled-back checkpoint can still be chosen by its step.
    """
    place = None if checkpoint is None else _place(checkpoint)
    is_live = checkpoint is not None and checkpoint.lifecycle != Lifecycle.SUPERSEDED
    return _move(tx, run, place, live=place if is_live else None)


def go_on_in_branch(tx: Transaction, run: RunRow) -> tuple[Fact, ...]:
    """Let the first save of the run's branch show where it is; return what is to be told.

    Where starts fail whatever they come from, a run is back at the checkpoint that was passed over, and the
    job that was started last may get going all the same. Its save is then the way that the run went: nothing
    of another way stays live beside it.
    """
    origin = branches.origin_of(tx, run.id, run.branch)
    to = Place(branch=run.branch, step=MAX_INTEGER)
    if origin is None or origin.lifecycle != Lifecycle.REGISTERED:
        return _move(tx, run, to, live=None)
    return _move(tx, run, to, live=_place(origin))


def _move(tx: Transaction, run: RunRow, to: Place | None, *, live: Place | None) -> tuple[Fact, ...]:
    """Make exactly those live that lead to a place.

    Args:
        tx: Where.
        run: Of which run.
        to: The place; None: nothing leads there.
        live: A place on the way that is live: only later ones are left behind, and nothing is restored.
            None: everything is looked at.
    """
    lineage = {} if to is None else lineage_of(to, branches.origins_of(tx, run.id))
    standing = branches.live_checkpoints(tx, run.id, after=live)
    gone = [row.id for row in standing if not is_on_the_way(_place(row), lineage)]
    back = []
    if lineage and live is None:
        left = branches.rolled_back_checkpoints(tx, run.id)
        back = [row.id for row in left if is_on_the_way(_place(row), lineage)]
    branches.roll_back(tx, gone)
    branches.restore(tx, back)
    reason = {"superseded_by": SupersededBy.ROLLED_BACK.value}
    return (
        Fact(kind=EventKind.CHECKPOINT_SUPERSEDED, about=_each(run, gone), data=reason),
        Fact(kind=EventKind.CHECKPOINT_RESTORED, about=_each(run, back)),
    )


def _branched(run: RunRow, checkpoint: Row[Any] | None, branch: int, facts: Sequence[Fact]) -> Fact:
    superseded, restored = facts
    data = {
        "branch": branch,
        "from_branch": None if checkpoint is None else checkpoint.branch,
        "from_step": None if checkpoint is None else checkpoint.step,
        "rolled_back": len(superseded.about),
        "restored": len(restored.about),
    }
    checkpoint_id = None if checkpoint is None else checkpoint.id
    about = Subject(project_id=run.project_id, run_id=run.id, checkpoint_id=checkpoint_id)
    return Fact(kind=EventKind.RUN_BRANCHED, about=(about,), data=data)


def _is_open_already(tx: Transaction, run: RunRow, checkpoint: Row[Any] | None) -> bool:
    current = branches.find_branch(tx, run.id, run.branch)
    origin = None if current is None else current.from_checkpoint_id
    wanted = None if checkpoint is None else checkpoint.id
    return origin == wanted and branches.is_empty(tx, run.id, run.branch)


def _require_bytes(checkpoint: Row[Any]) -> None:
    is_rolled_back = checkpoint.superseded_by == SupersededBy.ROLLED_BACK
    is_complete = checkpoint.registered_at is not None
    if checkpoint.lifecycle == Lifecycle.REGISTERED or (is_rolled_back and is_complete):
        return
    msg = f"checkpoint {checkpoint.id} is {checkpoint.lifecycle}: a run cannot go on from it"
    raise ConflictError(msg)


def _each(run: RunRow, checkpoint_ids: Sequence[int]) -> tuple[Subject, ...]:
    return tuple(
        Subject(project_id=run.project_id, run_id=run.id, checkpoint_id=row_id) for row_id in checkpoint_ids
    )


def _place(row: Row[Any]) -> Place:
    return Place(branch=row.branch, step=row.step)
