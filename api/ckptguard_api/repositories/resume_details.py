"""What an answer says of the checkpoints it names: where they are, what was found, how far the work is."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, and_, bindparam, select, update

from ckptguard.model.finding import Severity
from ckptguard.model.service import ValidationState
from ckptguard_api.database import Transaction
from ckptguard_api.domain.resume import HeardWorker, Progress
from ckptguard_api.tables import attempts, findings, leases, stores, validations, verdicts, workers

_MAX_DETAIL_CHARS: Final = 500


def read_details(tx: Transaction, validation_ids: Collection[int]) -> dict[int, str]:
    """Return the first finding of each validation that decided its verdict; those without one are left out.

    Args:
        tx: To read in.
        validation_ids: Of verdicts in force.
    """
    if not validation_ids:
        return {}
    first = (
        select(findings.c.id)
        .where(
            findings.c.validation_id == verdicts.c.validation_id,
            findings.c.is_about_checkpoint.is_(True),
            findings.c.severity.in_([Severity.ERROR.value, Severity.UNKNOWN.value]),
        )
        .order_by((findings.c.severity == Severity.ERROR.value).desc(), findings.c.number)
        .limit(1)
        .correlate(verdicts)
        .scalar_subquery()
    )
    statement = (
        select(verdicts.c.validation_id, findings.c.code, findings.c.file, findings.c.message)
        .select_from(verdicts.join(findings, findings.c.id == first))
        .where(verdicts.c.validation_id.in_(validation_ids))
    )
    return {row.validation_id: _detail(row) for row in tx.execute(statement)}


def _detail(row: Row[Any]) -> str:
    where = f" in {row.file}" if row.file else ""
    return f"{row.code}{where} ({row.message})"[:_MAX_DETAIL_CHARS]


def read_progress(tx: Transaction, validation_ids: Collection[int]) -> dict[int, Progress]:
    """Return how far the running ones of these validations are."""
    if not validation_ids:
        return {}
    statement = (
        select(leases.c.validation_id, leases.c.progress, leases.c.progress_at, attempts.c.started_at)
        .select_from(leases.join(attempts, attempts.c.id == leases.c.attempt_id))
        .where(leases.c.validation_id.in_(validation_ids))
    )
    return {
        row.validation_id: Progress.of(
            row.progress, seconds=(row.progress_at - row.started_at).total_seconds()
        )
        for row in tx.execute(statement)
    }


def read_stores(tx: Transaction, store_ids: Collection[int]) -> Mapping[int, Row[Any]]:
    """Return these stores by id, also those that were removed."""
    if not store_ids:
        return {}
    return {row.id: row for row in tx.execute(select(stores).where(stores.c.id.in_(store_ids)))}


def read_heard_workers(tx: Transaction, *, within_s: float) -> list[HeardWorker]:
    """Return the workers that were heard from lately and take work."""
    since = tx.now - timedelta(seconds=within_s)
    statement = select(workers).where(workers.c.seen_at >= since, workers.c.is_draining.is_(False))
    return [HeardWorker.of(row.capabilities, project_id=row.project_id) for row in tx.execute(statement)]


def mark_waited_for(tx: Transaction, validation_ids: Collection[int], *, until: datetime) -> None:
    """Tell the queue that somebody waits for these validations until then.

    One row after the other in the order of ids: two processes that mark the same ones never deadlock.
    """
    statement = (
        update(validations)
        .where(
            and_(
                validations.c.id == bindparam("waited_id"),
                validations.c.state == ValidationState.QUEUED.value,
            )
        )
        .values(waited_until=bindparam("until"))
    )
    tx.execute(statement, [{"waited_id": one, "until": until} for one in sorted(validation_ids)])
