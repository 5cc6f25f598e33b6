"""Spans of validations that ended: made from the audit, by one process, however many there are."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Row, func, select

from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.leasing.schedule import Round
from ckptguard_api.tables import attempts, events, runs, validations, verdicts
from ckptguard_api.tracing import Tracing

EVENTS_A_ROUND: Final = 500


def tracing_work(tracing: Tracing) -> Callable[[Transaction, int], Round]:
    """Return the work of a task that hands each validation that ended to OpenTelemetry."""

    def work(tx: Transaction, cursor: int) -> Round:
        if cursor == 0:  # tracing was just turned on: what is long over is not told
            return Round(cursor=tx.execute(select(func.max(events.c.id))).scalar_one() or 0)
        query = select(events.c.id, events.c.kind, events.c.validation_id).where(events.c.id > cursor)
        found = tx.execute(query.order_by(events.c.id).limit(EVENTS_A_ROUND)).all()
        ended = [event.validation_id for event in found if event.kind == EventKind.VALIDATION_FINISHED]
        for row in _validations(tx, ended):
            _add_span(tracing, row)
        end = found[-1].id if found else cursor
        return Round(cursor=end, is_more=len(found) == EVENTS_A_ROUND)

    return work


def _validations(tx: Transaction, ids: list[int]) -> list[Row[Any]]:
    query = (
        select(verdicts, attempts.c.started_at, attempts.c.number, runs.c.name)
        .join(attempts, attempts.c.id == verdicts.c.attempt_id)
        .join(validations, validations.c.id == verdicts.c.validation_id)
        .join(runs, runs.c.id == validations.c.run_id)
        .where(verdicts.c.validation_id.in_(ids))
    )
    return list(tx.execute(query).all()) if ids else []


def _add_span(tracing: Tracing, row: Row[Any]) -> None:
    attributes = {
        "ckptguard.run": row.name,
        "ckptguard.validation_id": row.validation_id,
        "ckptguard.attempt": row.number,
        "ckptguard.verdict": row.verdict,
        "ckptguard.bytes_read": row.bytes_read,
    }
    tracing.add_span("validation", began_at=row.started_at, ended_at=row.given_at, attributes=attributes)
