"""Events in the order of their ids, and what running leases say meanwhile."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, func, select

from ckptguard_api.database import Transaction
from ckptguard_api.repositories.validations import IS_OPEN
from ckptguard_api.tables import events, leases, runs, validations

EventRow = Row[Any]
"""A row of `events`, with `run`: the name of its run, or None."""

ProgressRow = Row[Any]
"""Of a live lease: `progress`, `validation_id`, `checkpoint_id`, `project_id`, `run_id`, `run`."""

_MAX_PROGRESS_ROWS: Final = 1000


def newest_event_id(tx: Transaction, *, project_id: int | None = None, run_id: int | None = None) -> int:
    """Return the id of the newest event; 0: there is none.

    Args:
        tx: Where.
        project_id: Only of this project; None: of all.
        run_id: Only of this run; None: of all.
    """
    statement = select(func.max(events.c.id))
    if run_id is not None:
        statement = statement.where(events.c.run_id == run_id)
    elif project_id is not None:
        statement = statement.where(events.c.project_id == project_id)
    return int(tx.execute(statement).scalar_one() or 0)


def newest_progress_at(tx: Transaction, run_id: int) -> datetime | None:
    """Return when a live lease of a run last got on; None: nobody works on it."""
    joined = leases.join(validations, validations.c.id == leases.c.validation_id)
    # From the few that are open: without their index SQLite walks through all validations (a million: 80 ms).
    statement = select(func.max(leases.c.progress_at)).select_from(joined).where(IS_OPEN)
    found: datetime | None = tx.execute(statement.where(validations.c.run_id == run_id)).scalar_one()
    return found


def events_after(
    tx: Transaction,
    after_id: int,
    *,
    until_id: int | None = None,
    project_id: int | None = None,
    run_id: int | None = None,
    limit: int,
) -> Sequence[EventRow]:
    """Return events above `after_id`, oldest first.

    Args:
        tx: Where.
        after_id: The last one that was seen.
        until_id: The last one wanted; None: all.
        project_id: Only this project's; None: all.
        run_id: Only this run's; None: all.
        limit: At most so many.
    """
    joined = events.outerjoin(runs, runs.c.id == events.c.run_id)
    statement = select(*events.c, runs.c.name.label("run")).select_from(joined).where(events.c.id > after_id)
    if until_id is not None:
        statement = statement.where(events.c.id <= until_id)
    if project_id is not None:
        statement = statement.where(events.c.project_id == project_id)
    if run_id is not None:
        statement = statement.where(events.c.run_id == run_id)
    return tx.execute(statement.order_by(events.c.id).limit(limit)).all()


def running_progress(tx: Transaction, project_ids: Collection[int]) -> Sequence[ProgressRow]:
    """Return what the live leases of these projects last said."""
    joined = leases.join(validations, validations.c.id == leases.c.validation_id).join(
        runs, runs.c.id == validations.c.run_id
    )
    statement = (
        select(
            leases.c.progress,
            validations.c.id.label("validation_id"),
            validations.c.checkpoint_id,
            validations.c.project_id,
            validations.c.run_id,
            runs.c.name.label("run"),
        )
        .select_from(joined)
        .where(validations.c.project_id.in_(project_ids))
        .order_by(leases.c.attempt_id)
        .limit(_MAX_PROGRESS_ROWS)
    )
    return tx.execute(statement).all()
