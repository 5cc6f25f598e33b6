"""Rows of `schedule`: who may do the work that comes again, one at a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, insert, or_, select, update

from ckptguard_api.database import Transaction
from ckptguard_api.tables import schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to do one round of a task.

    Args:
        name: Of the task.
        fence: Higher than that of every earlier claim of this task.
        cursor: Where the last finished round ended.
    """

    name: str
    fence: int
    cursor: int


def add_missing(tx: Transaction, names: Iterable[str]) -> None:
    """Make rows for tasks that have none, due at once.

    Raises:
        ConflictError: At the commit, where another process was faster; then all is well too.
    """
    known = set(tx.execute(select(schedule.c.name)).scalars())
    for name in names:
        if name not in known:
            tx.execute(insert(schedule).values(name=name, next_at=tx.now, claim=0, cursor=0))


def find_due(tx: Transaction, every_s: dict[str, float], *, hold_s: float) -> list[str]:
    """Return the names of tasks that somebody may claim now; writes nothing.

    Args:
        tx: May be a reader's.
        every_s: Name and period of each task.
        hold_s: How long a claim holds.
    """
    due = [
        select(schedule.c.name).where(schedule.c.name == name, _is_due(tx.now, period, hold_s))
        for name, period in every_s.items()
    ]
    return [name for query in due for name in tx.execute(query).scalars()]


def claim(tx: Transaction, name: str, *, every_s: float, hold_s: float) -> Claim | None:
    """Claim one round of a task if it is due and nobody else's; compare and set, in one statement."""
    statement = (
        update(schedule)
        .where(schedule.c.name == name, _is_due(tx.now, every_s, hold_s))
        .values(claim=schedule.c.claim + 1, claimed_until=tx.now + timedelta(seconds=hold_s))
        .returning(schedule.c.claim, schedule.c.cursor)
    )
    row = tx.execute(statement).one_or_none()
    return None if row is None else Claim(name=name, fence=row.claim, cursor=row.cursor)


def lock(tx: Transaction, held: Claim) -> bool:
    """Say whether the claim is still the newest, and keep it so until the commit."""
    statement = (
        select(schedule.c.claim)
        .where(
            schedule.c.name == held.name,
            schedule.c.claim == held.fence,
            schedule.c.claimed_until.is_not(None),
        )
        .with_for_update()
    )
    return tx.execute(statement).one_or_none() is not None


def finish(tx: Transaction, held: Claim, *, next_at: datetime, cursor: int) -> None:
    """Give the task free again; the caller has locked the claim."""
    statement = update(schedule).where(schedule.c.name == held.name, schedule.c.claim == held.fence)
    tx.execute(statement.values(next_at=next_at, claimed_until=None, cursor=cursor))


def _is_due(now: datetime, every_s: float, hold_s: float) -> ColumnElement[bool]:
    # A time further away than it was ever set: the clock was put back since, and must not stop the work.
    due = or_(schedule.c.next_at <= now, schedule.c.next_at > now + timedelta(seconds=every_s))
    free = or_(
        schedule.c.claimed_until.is_(None),
        schedule.c.claimed_until <= now,
        schedule.c.claimed_until > now + timedelta(seconds=hold_s),
    )
    return due & free
