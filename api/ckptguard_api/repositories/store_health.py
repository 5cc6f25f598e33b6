"""How stores do, as far as the tables tell: what waits, the last verdicts, what was not read for long."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, select, text

from ckptguard_api.database import Transaction
from ckptguard_api.repositories.validations import IS_OPEN
from ckptguard_api.tables import RETRIED, USABLE, checkpoints, validations, verdicts


def open_by_store(tx: Transaction, store_ids: Collection[int]) -> Sequence[Row[Any]]:
    """Return `store_id`, `state`, `number` and `oldest` of what is queued or running."""
    v = validations.c
    statement = select(
        v.store_id, v.state, func.count().label("number"), func.min(v.requested_at).label("oldest")
    ).where(IS_OPEN, v.store_id.in_(store_ids))
    return tx.execute(statement.group_by(v.store_id, v.state)).all()


def last_verdicts(tx: Transaction, store_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return the last verdicts on checkpoints of a store, newest first, each with its finding's code.

    Cost: the rows it returns, by index.
    """
    v = validations.c
    statement = (
        select(
            v.id,
            v.run_id,
            v.checkpoint_id,
            v.step,
            v.finished_at,
            *(verdicts.c[name] for name in ("verdict", "basis", "assurance", "is_retryable")),
            *(verdicts.c[name] for name in ("bytes_read", "seconds_reading")),
        )
        .join(verdicts, verdicts.c.validation_id == v.id)
        .where(text("validations.state = 'finished'"), v.store_id == store_id)
        .order_by(v.finished_at.desc(), v.id.desc())
        .limit(limit)
    )
    return tx.execute(statement).all()


def longest_unread_at(tx: Transaction, store_id: int) -> datetime | None:
    """Return when the checkpoint that was not read for longest was validated, of those that may be used."""
    statement = select(func.min(checkpoints.c.validated_at)).where(
        text(USABLE), checkpoints.c.store_id == store_id
    )
    at: datetime | None = tx.execute(statement).scalar_one()
    return at


def count_unread_since(tx: Transaction, store_id: int, since: datetime, *, at_most: int) -> int:
    """Count checkpoints that may be used and were not read since, up to a bound."""
    c = checkpoints.c
    found = select(c.id).where(text(USABLE), c.store_id == store_id, c.validated_at < since).limit(at_most)
    number: int = tx.execute(select(func.count()).select_from(found.subquery())).scalar_one()
    return number


def retries_by_store(tx: Transaction, store_ids: Collection[int]) -> Mapping[int, Row[Any]]:
    """Return `number` and `next_at` of the verdicts that the service asks for again by itself."""
    c = checkpoints.c
    statement = (
        select(c.store_id, func.count().label("number"), func.min(c.retry_at).label("next_at"))
        .where(text(RETRIED), c.store_id.in_(store_ids))
        .group_by(c.store_id)
    )
    return {row.store_id: row for row in tx.execute(statement)}
