"""What the service watches by itself: workers that fall silent, runs that nothing protects, old verdicts."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, exists, func, select, text, update

from ckptguard.model.service import ValidationReason, ValidationState
from ckptguard_api.database import Transaction
from ckptguard_api.repositories.run_overview import overview_of_all
from ckptguard_api.tables import USABLE, checkpoints, runs, stores, validations, workers


def mark_silent(tx: Transaction, *, heard_since: datetime, limit: int) -> Sequence[Row[Any]]:
    """Mark workers not heard of since then, and return those that were not marked before.

    One that said it was going is not silent, it went.
    """
    silent = select(workers.c.id).where(
        workers.c.seen_at < heard_since, workers.c.silent_told_at.is_(None), ~workers.c.is_draining
    )
    statement = (
        update(workers)
        .where(workers.c.id.in_(silent.order_by(workers.c.id).limit(limit)), workers.c.seen_at < heard_since)
        .values(silent_told_at=tx.now)
    )
    return tx.execute(statement.returning(workers)).all()


def mark_returned(tx: Transaction, *, heard_since: datetime, limit: int) -> Sequence[Row[Any]]:
    """Take the mark from workers that were heard of again, and return them."""
    back = select(workers.c.id).where(workers.c.silent_told_at.is_not(None), workers.c.seen_at >= heard_since)
    statement = (
        update(workers)
        .where(workers.c.id.in_(back.order_by(workers.c.id).limit(limit)))
        .values(silent_told_at=None)
    )
    return tx.execute(statement.returning(workers)).all()


def watched_runs(tx: Transaction, *, after_id: int, limit: int) -> Sequence[Row[Any]]:
    """Return runs that want to be told when unprotected, by id, as `overview` selects them."""
    query = overview_of_all().where(runs.c.unprotected_after_s.is_not(None), runs.c.id > after_id)
    return tx.execute(query.order_by(runs.c.id).limit(limit)).all()


def set_unprotected(tx: Transaction, run_id: int, *, told_at: datetime | None) -> bool:
    """Mark a run as told of, or as protected again; False: it was so already."""
    is_other = runs.c.unprotected_told_at.is_(None) if told_at else runs.c.unprotected_told_at.is_not(None)
    statement = update(runs).where(runs.c.id == run_id, is_other).values(unprotected_told_at=told_at)
    return tx.execute(statement).rowcount == 1


def scrubbed_stores(tx: Transaction, *, after_id: int, limit: int) -> Sequence[Row[Any]]:
    """Return stores whose checkpoints are to be read again from time to time, by id."""
    query = select(stores).where(
        stores.c.scrub_every_s.is_not(None), stores.c.removed_at.is_(None), stores.c.id > after_id
    )
    return tx.execute(query.order_by(stores.c.id).limit(limit)).all()


def count_open_scrubs(tx: Transaction, store_id: int) -> int:
    """Return how many scrubs of a store are queued or running."""
    is_open = validations.c.state.in_([ValidationState.QUEUED.value, ValidationState.RUNNING.value])
    query = (
        select(func.count())
        .select_from(validations)
        .where(is_open, validations.c.store_id == store_id, validations.c.reason == ValidationReason.SCRUB)
    )
    number: int = tx.execute(query).scalar_one()
    return number


def longest_unread(
    tx: Transaction, store: Row[Any], *, limit: int, run_id: int | None = None
) -> Sequence[Row[Any]]:
    """Return usable checkpoints of a store whose verdict is older than its period, oldest first.

    Not those that were asked for since: a scrub that found out nothing is not repeated before its time.

    Args:
        tx: Of this round.
        store: A row of `stores` with a period.
        limit: At most so many.
        run_id: Of this run alone; None: of all.
    """
    before = tx.now - timedelta(seconds=store.scrub_every_s)
    asked = exists().where(
        validations.c.checkpoint_id == checkpoints.c.id, validations.c.requested_at > before
    )
    query = select(checkpoints).where(
        checkpoints.c.store_id == store.id,
        text(USABLE),
        checkpoints.c.validated_at < before,
        checkpoints.c.validation_state.is_(None),
        ~asked,
    )
    if run_id is not None:
        query = query.where(checkpoints.c.run_id == run_id)
    return tx.execute(query.order_by(checkpoints.c.validated_at, checkpoints.c.id).limit(limit)).all()
