"""Projects and runs, by name and by lock."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select, update

from ckptguard.errors import NotFoundError
from ckptguard_api.database import Transaction
from ckptguard_api.tables import projects, runs

RunRow = Row[Any]
"""A row of `runs`, all columns."""


def lock_project(tx: Transaction, project_id: int) -> Row[Any]:
    """Let no other transaction register or announce in this project until the commit.

    Locations of different runs may overlap, and neither of two transactions would see the other's.
    `key_share`: rows that only refer to the project may still be added. A plain `FOR UPDATE` would make
    the event of a claim wait for a registration that waits for the run which the claim holds.
    """
    statement = select(projects).where(projects.c.id == project_id).with_for_update(key_share=True)
    return tx.execute(statement).one()


def find_run(tx: Transaction, project_id: int, name: str) -> RunRow | None:
    """Return the run, or None."""
    return tx.execute(select(runs).where(runs.c.project_id == project_id, runs.c.name == name)).one_or_none()


def get_run(tx: Transaction, project_id: int, name: str) -> RunRow:
    """Return the run.

    Raises:
        NotFoundError: There is none.
    """
    row = find_run(tx, project_id, name)
    if row is None:
        msg = "no such run"
        raise NotFoundError(msg)
    return row


def lock_run(tx: Transaction, run_id: int) -> RunRow:
    """Return the run, and let no other transaction change its checkpoints until the commit.

    Lock order, everywhere: project, run, checkpoint, validation, lease; then the order of events.

    Raises:
        NotFoundError: There is none.
    """
    row = tx.execute(select(runs).where(runs.c.id == run_id).with_for_update(key_share=True)).one_or_none()
    if row is None:
        msg = "no such run"
        raise NotFoundError(msg)
    return row


def touch_run(tx: Transaction, run_id: int) -> None:
    """Raise the run's revision: whatever a resume target of it may show has changed.

    Guarantees: caches hold an answer against the revision, so every change of a checkpoint, a hold, a
    verdict, a validation's state, a branch or the run's policy must call this in its transaction.
    """
    tx.execute(update(runs).where(runs.c.id == run_id).values(revision=runs.c.revision + 1))
    tx.touched_runs.add(run_id)


def try_lock_runs(tx: Transaction, run_ids: Sequence[int]) -> dict[int, RunRow]:
    """Lock those of these runs that nobody else holds, and return them by id; waits for none."""
    statement = select(runs).where(runs.c.id.in_(run_ids)).order_by(runs.c.id)
    rows = tx.execute(statement.with_for_update(key_share=True, skip_locked=True))
    return {row.id: row for row in rows}


def note_step_went_back(tx: Transaction, run_id: int) -> None:
    """Remember that a save of an earlier step came without a report of a resume."""
    tx.execute(update(runs).where(runs.c.id == run_id).values(step_went_back_at=tx.now))
