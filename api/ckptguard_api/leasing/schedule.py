"""Work that comes again, done by one API process at a time and never twice.

A round has two transactions: the first claims it (compare and set, with a fence), the second does the work
and finishes the claim, and holds the fence's row from its beginning to its commit. So a process that stops
between the two loses its claim after `HOLD_S`, and one that wakes up late finds a higher fence and does
nothing; what a round wrote and that it was finished are committed together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ckptguard_api.database import Database, Transaction
from ckptguard_api.repositories import schedule as claims

HOLD_S: Final = 60.0
"""A claim holds this long; the statement timeout of a transaction is not longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round of a task left.

    Args:
        cursor: Where the next one begins.
        is_more: There is more to do now: the next round need not wait.
    """

    cursor: int = 0
    is_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something to do again and again.

    Args:
        name: Its row in `schedule`; stable.
        every_s: Seconds between rounds that found nothing more to do.
        work: One bounded round, in the transaction handed in, from the cursor handed in.
    """

    name: str
    every_s: float
    work: Callable[[Transaction, int], Round]


def prepare(database: Database, tasks: Sequence[Task]) -> None:
    """Make the rows of these tasks.

    Raises:
        ConflictError: Another process made one at the same time; do it again.
        ServiceUnavailableError: The database gave no answer.
    """
    with database.write() as tx:
        claims.add_missing(tx, [task.name for task in tasks])


def due_tasks(database: Database, tasks: Sequence[Task]) -> list[Task]:
    """Return those tasks that may be claimed now.

    Raises:
        ServiceUnavailableError: The database gave no answer.
    """
    with database.read() as tx:
        due = set(claims.find_due(tx, {task.name: task.every_s for task in tasks}, hold_s=HOLD_S))
    return [task for task in tasks if task.name in due]


def claim_round(database: Database, task: Task) -> claims.Claim | None:
    """Claim a round of this task; None: it is not due, or another process has it.

    Raises:
        ServiceUnavailableError: The database gave no answer.
    """
    with database.write() as tx:
        return claims.claim(tx, task.name, every_s=task.every_s, hold_s=HOLD_S)


def do_round(database: Database, task: Task, held: claims.Claim) -> Round | None:
    """Do a claimed round; None: the claim was lost meanwhile, and nothing was done.

    Raises:
        ServiceUnavailableError: The database gave no answer; the claim expires by itself.
    """
    with database.write() as tx:
        if not claims.lock(tx, held):
            return None
        done = task.work(tx, held.cursor)
        pause = timedelta(seconds=0.0 if done.is_more else task.every_s)
        claims.finish(tx, held, next_at=tx.now + pause, cursor=done.cursor)
        return done
