"""What metrics are made of: a few short reads, none of which grows with the number of checkpoints."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, case, func, literal, select, text

from ckptguard.model.finding import Severity
from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.repositories.run_overview import overview_of_all
from ckptguard_api.tables import (
    checkpoints,
    deliveries,
    delivery_tries,
    events,
    findings,
    projects,
    validations,
    verdicts,
    workers,
)

EVENTS_AT_ONCE: Final = 5_000
"""Events, or tries of deliveries, that one look goes through; the next look takes the rest."""


def active_runs(tx: Transaction, *, saved_since: datetime, limit: int) -> Sequence[Row[Any]]:
    """Return runs whose newest checkpoint is not older, those saved last first.

    Returns:
        Columns of `runs`, `project`, and `step` and `created_at` of the newest checkpoint (`saved_…`) and
        of the newest that a resume may use (`valid_…`, None where there is none).

    Cost: two index look-ups a run.
    """
    runs = overview_of_all().subquery("runs_seen")
    saved, valid = checkpoints.alias("saved"), checkpoints.alias("valid")
    query = (
        select(
            runs,
            projects.c.name.label("project"),
            saved.c.step.label("saved_step"),
            saved.c.created_at.label("saved_at"),
            valid.c.step.label("valid_step"),
            valid.c.created_at.label("valid_at"),
        )
        .join(projects, projects.c.id == runs.c.project_id)
        .join(saved, saved.c.id == runs.c.newest_id)
        .outerjoin(valid, valid.c.id == runs.c.newest_valid_id)
        .where(saved.c.created_at >= saved_since)
    )
    return tx.execute(query.order_by(saved.c.created_at.desc(), runs.c.id).limit(limit)).all()


def open_validations(tx: Transaction) -> Sequence[Row[Any]]:
    """Return `tier`, `state`, `number` and `oldest` of all that is queued or running.

    Tier 0 is what somebody waits for right now.
    """
    is_waited = validations.c.waited_until > tx.now
    tier = case((is_waited, literal(0)), else_=validations.c.tier).label("tier")
    found = (
        select(tier, validations.c.state, validations.c.requested_at)
        .where(text("state IN ('queued','running')"))
        .subquery()
    )
    grouped = select(
        found.c.tier,
        found.c.state,
        func.count().label("number"),
        func.min(found.c.requested_at).label("oldest"),
    )
    return tx.execute(grouped.group_by(found.c.tier, found.c.state)).all()


def workers_heard_since(tx: Transaction, since: datetime, *, limit: int) -> Sequence[Row[Any]]:
    """Return workers not gone for long, those heard of last first."""
    query = select(workers.c.name, workers.c.seen_at, workers.c.is_draining).where(workers.c.seen_at >= since)
    return tx.execute(query.order_by(workers.c.seen_at.desc(), workers.c.id).limit(limit)).all()


def waiting_deliveries(tx: Transaction) -> dict[str, int]:
    """Count the deliveries that are pending, and those that were given up."""
    states = ("pending", "given_up")
    # A literal each: the partial indexes need them in the query.
    counts = {
        state: select(func.count()).select_from(deliveries).where(text(f"state = '{state}'"))
        for state in states
    }
    return {state: int(tx.execute(query).scalar_one()) for state, query in counts.items()}


def last_ids(tx: Transaction) -> tuple[int, int]:
    """Return the last event and the last try of a delivery; 0: there is none."""
    event_id = tx.execute(select(func.max(events.c.id))).scalar_one()
    try_id = tx.execute(select(func.max(delivery_tries.c.id))).scalar_one()
    return event_id or 0, try_id or 0


def new_events(tx: Transaction, after_id: int) -> Sequence[Row[Any]]:
    """Return `id`, `kind`, `data` and `validation_id` of events after one, oldest first."""
    columns = (events.c.id, events.c.kind, events.c.data, events.c.validation_id)
    query = select(*columns).where(events.c.id > after_id).order_by(events.c.id)
    return tx.execute(query.limit(EVENTS_AT_ONCE)).all()


def new_tries(tx: Transaction, after_id: int) -> Sequence[Row[Any]]:
    """Return `id` and `error` of tries of deliveries after one, oldest first."""
    query = select(delivery_tries.c.id, delivery_tries.c.error).where(delivery_tries.c.id > after_id)
    return tx.execute(query.order_by(delivery_tries.c.id).limit(EVENTS_AT_ONCE)).all()


def verdicts_with_code(tx: Transaction, found: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
    """Return the verdicts that some events tell of, each with the `code` of its first telling finding.

    Args:
        tx: A reader's.
        found: Events of any kind.
    """
    ids = [event.validation_id for event in found if event.kind == EventKind.VALIDATION_FINISHED]
    telling = [Severity.ERROR.value, Severity.UNKNOWN.value]
    code = (
        select(findings.c.code)
        .where(
            findings.c.validation_id == verdicts.c.validation_id,
            findings.c.is_about_checkpoint,
            findings.c.severity.in_(telling),
        )
        # Errors decide before doubts do (design §3).
        .order_by(findings.c.severity != Severity.ERROR.value, findings.c.number)
        .limit(1)
        .scalar_subquery()
    )
    columns = (verdicts.c.verdict, verdicts.c.basis, verdicts.c.bytes_read, verdicts.c.seconds_reading)
    query = select(*columns, code.label("code")).where(verdicts.c.validation_id.in_(ids))
    return tx.execute(query).all() if ids else ()
