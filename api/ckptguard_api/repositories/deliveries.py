"""Rows of `deliveries`: one for each webhook and event, however often it is sent."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, and_, func, insert, or_, select, update

from ckptguard.errors import NotFoundError
from ckptguard_api.database import Transaction
from ckptguard_api.tables import checkpoints, deliveries, delivery_tries, events, projects, runs, webhooks

DeliveryRow = Row[Any]
"""A row of `deliveries`, all columns."""

PENDING: Final = "pending"
DELIVERED: Final = "delivered"
GIVEN_UP: Final = "given_up"
MAX_ERROR_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What became of one try.

    Args:
        at: When it began.
        status: HTTP status; None: no answer.
        error: Why it is no success; None: it is one.
        seconds: It took.
    """

    at: datetime
    status: int | None
    error: str | None
    seconds: float


def add_delivery(tx: Transaction, webhook_id: int, event_id: int) -> int | None:
    """Add a delivery due now, and return its id; None: there is one already."""
    same = (deliveries.c.webhook_id == webhook_id) & (deliveries.c.event_id == event_id)
    if tx.execute(select(deliveries.c.id).where(same)).one_or_none() is not None:
        return None
    values = {
        "webhook_id": webhook_id,
        "event_id": event_id,
        "message_id": f"msg_{secrets.token_hex(12)}",
        "state": PENDING,
        "tries": 0,
        "next_at": tx.now,
        "claim": 0,
        "created_at": tx.now,
    }
    row_id: int = tx.execute(insert(deliveries).values(values).returning(deliveries.c.id)).scalar_one()
    return row_id


def claim_due(tx: Transaction, *, limit: int, limit_per_webhook: int, hold_s: float) -> Sequence[DeliveryRow]:
    """Claim deliveries that are due and nobody else's: compare and set, in one statement.

    Args:
        tx: Of the claim alone: sending comes after the commit.
        limit: Deliveries at most.
        limit_per_webhook: Of one webhook: a receiver that hangs must not keep others waiting.
        hold_s: Sending takes less; after that others may claim them.
    """
    turn = func.row_number().over(partition_by=deliveries.c.webhook_id, order_by=deliveries.c.next_at)
    due = (
        select(deliveries.c.id, deliveries.c.next_at, turn.label("turn"))
        .where(_is_due(tx.now, hold_s))
        .subquery()
    )
    chosen = select(due.c.id).where(due.c.turn <= limit_per_webhook).order_by(due.c.next_at).limit(limit)
    statement = (
        update(deliveries)
        # The condition again: of two that chose the same row, the second sees what the first wrote.
        .where(deliveries.c.id.in_(chosen), _is_due(tx.now, hold_s))
        .values(claim=deliveries.c.claim + 1, claimed_until=tx.now + timedelta(seconds=hold_s))
        .returning(deliveries)
    )
    return tx.execute(statement).all()


def finish_try(
    tx: Transaction, held: DeliveryRow, attempted: Attempted, *, state: str, next_at: datetime | None
) -> bool:
    """Write down one try, and free the delivery; False: the claim was lost, and nothing is written.

    Args:
        tx: A writer's.
        held: As `claim_due` returned it.
        attempted: What happened.
        state: Of the delivery from now on.
        next_at: Of the next try; None: there is none.
    """
    values = {
        "state": state,
        "tries": deliveries.c.tries + 1,
        "next_at": next_at,
        "claimed_until": None,
        "delivered_at": attempted.at if state == DELIVERED else None,
    }
    is_held = (deliveries.c.id == held.id) & (deliveries.c.claim == held.claim)
    is_held &= deliveries.c.claimed_until.is_not(None)
    if tx.execute(update(deliveries).where(is_held).values(values)).rowcount != 1:
        return False
    tx.execute(
        insert(delivery_tries).values(
            delivery_id=held.id,
            number=held.tries + 1,
            at=attempted.at,
            status=attempted.status,
            error=attempted.error and attempted.error[:MAX_ERROR_CHARS],
            seconds=attempted.seconds,
        )
    )
    return True


def send_again(tx: Transaction, delivery_id: int, *, project_id: int) -> DeliveryRow:
    """Make a delivery due now, whatever became of it; the claim of one that sends right now is lost.

    Raises:
        NotFoundError: There is none in this project, or its webhook was removed.
    """
    row = get_delivery(tx, delivery_id, project_id=project_id)
    values = {
        "state": PENDING,
        "next_at": tx.now,
        "claimed_until": None,
        "claim": deliveries.c.claim + 1,
        "delivered_at": None,
    }
    statement = update(deliveries).where(deliveries.c.id == row.id).values(values)
    return tx.execute(statement.returning(deliveries)).one()


def give_up_all(tx: Transaction, webhook_id: int) -> None:
    """Send nothing more of what is pending for a webhook."""
    is_pending = (deliveries.c.webhook_id == webhook_id) & (deliveries.c.state == PENDING)
    tx.execute(update(deliveries).where(is_pending).values(state=GIVEN_UP, next_at=None))


def get_delivery(tx: Transaction, delivery_id: int, *, project_id: int) -> DeliveryRow:
    """Return one delivery.

    Raises:
        NotFoundError: There is none in this project, or its webhook was removed.
    """
    query = (
        select(deliveries)
        .join(webhooks, webhooks.c.id == deliveries.c.webhook_id)
        .where(
            deliveries.c.id == delivery_id,
            webhooks.c.project_id == project_id,
            webhooks.c.removed_at.is_(None),
        )
    )
    row = tx.execute(query).one_or_none()
    if row is None:
        msg = f"no delivery {delivery_id}"
        raise NotFoundError(msg)
    return row


def list_deliveries(
    tx: Transaction, webhook_id: int, *, before_id: int | None, limit: int
) -> Sequence[DeliveryRow]:
    """Return deliveries of a webhook with the kind of their event, newest first."""
    query = (
        select(deliveries, events.c.kind)
        .join(events, events.c.id == deliveries.c.event_id)
        .where(deliveries.c.webhook_id == webhook_id)
    )
    if before_id is not None:
        query = query.where(deliveries.c.id < before_id)
    return tx.execute(query.order_by(deliveries.c.id.desc()).limit(limit)).all()


def tries_of(tx: Transaction, delivery_ids: Iterable[int]) -> dict[int, list[Row[Any]]]:
    """Return the log of each delivery, oldest try first."""
    found: dict[int, list[Row[Any]]] = {delivery_id: [] for delivery_id in delivery_ids}
    query = select(delivery_tries).where(delivery_tries.c.delivery_id.in_(found))
    for row in tx.execute(query.order_by(delivery_tries.c.delivery_id, delivery_tries.c.number)):
        found[row.delivery_id].append(row)
    return found


def happenings_of(tx: Transaction, event_ids: Iterable[int]) -> Sequence[Row[Any]]:
    """Return events with the names that their ids stand for: `project`, `run`, `step`, `save_id`."""
    query = (
        select(
            events,
            projects.c.name.label("project"),
            runs.c.name.label("run"),
            checkpoints.c.step,
            checkpoints.c.save_id,
        )
        .outerjoin(projects, projects.c.id == events.c.project_id)
        .outerjoin(runs, runs.c.id == events.c.run_id)
        .outerjoin(checkpoints, checkpoints.c.id == events.c.checkpoint_id)
    )
    return tx.execute(query.where(events.c.id.in_(list(event_ids)))).all()


def _is_due(now: datetime, hold_s: float) -> ColumnElement[bool]:
    free = or_(
        deliveries.c.claimed_until.is_(None),
        deliveries.c.claimed_until <= now,
        # Further away than a claim ever holds: the clock was put back since.
        deliveries.c.claimed_until > now + timedelta(seconds=hold_s),
    )
    return and_(deliveries.c.state == PENDING, deliveries.c.next_at <= now, free)
