"""Reports of starts: kept for ever; those that still count are few."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, insert, select, text, update

from ckptguard.model.service import RestartOutcome
from ckptguard_api.database import Transaction
from ckptguard_api.domain.restart_report import RestartReport
from ckptguard_api.tables import restarts

MAX_FAILURES: Final = 1000
"""Failures that are looked at; a run that fails more often without progress is judged by its last ones."""
_OPEN: Final = text("NOT is_settled")


def find_restart(tx: Transaction, run_id: int, attempt: str, outcome: RestartOutcome) -> Row[Any] | None:
    """Return what was told before about this start."""
    statement = select(restarts).where(
        restarts.c.run_id == run_id,
        restarts.c.attempt_key == attempt,
        restarts.c.outcome == outcome.value,
    )
    return tx.execute(statement).one_or_none()


def add_restart(
    tx: Transaction,
    report: RestartReport,
    *,
    run_id: int,
    checkpoint_id: int | None,
    branch: int,
    is_branch_opened: bool,
    is_settled: bool,
) -> int:
    """Keep one report, and return its id."""
    values = {
        "run_id": run_id,
        "checkpoint_id": checkpoint_id,
        "attempt_key": report.attempt,
        "outcome": report.outcome.value,
        "nodes": sorted(set(report.nodes)),
        "steps_done": report.steps_done,
        "detail": report.detail,
        "reported_at": tx.now,
        "branch": branch,
        "is_branch_opened": is_branch_opened,
        "is_settled": is_settled,
    }
    row_id: int = tx.execute(insert(restarts).values(values).returning(restarts.c.id)).scalar_one()
    return row_id


def open_failures(tx: Transaction, run_id: int) -> Sequence[Row[Any]]:
    """Return the failures of a run that still count, oldest first; the last `MAX_FAILURES`."""
    statement = select(restarts).where(restarts.c.run_id == run_id, _OPEN)
    newest_first = tx.execute(statement.order_by(restarts.c.id.desc()).limit(MAX_FAILURES)).all()
    return newest_first[::-1]


def settle_failures(tx: Transaction, run_id: int, *, checkpoint_id: int | None = None) -> None:
    """Count no failure told so far any more.

    Args:
        tx: Where.
        run_id: Of which run.
        checkpoint_id: Only those that started from it; None: all.
    """
    statement = update(restarts).where(restarts.c.run_id == run_id, _OPEN)
    if checkpoint_id is not None:
        statement = statement.where(restarts.c.checkpoint_id == checkpoint_id)
    tx.execute(statement.values(is_settled=True))
