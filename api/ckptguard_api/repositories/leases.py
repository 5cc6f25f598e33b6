"""Leases and the attempts that they belong to; an attempt's id is its fence."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from ckptguard.model.service import AttemptEnding
from ckptguard_api.database import Transaction
from ckptguard_api.domain.storable_text import storable
from ckptguard_api.tables import attempts, leases, validations

LeaseRow = Row[Any]
"""A row of `leases`, all columns."""

AttemptRow = Row[Any]
"""A row of `attempts`, all columns."""


def insert_lease(
    tx: Transaction,
    *,
    validation: Row[Any],
    worker_id: int,
    token_hash: str,
    expires_at: datetime,
    deadline_at: datetime,
) -> LeaseRow:
    """Start the next attempt at a validation, and give it a lease.

    Raises:
        IntegrityError: The validation has a live lease: one at most, whatever the code does.
    """
    attempt_id = tx.execute(
        insert(attempts)
        .values(
            validation_id=validation.id,
            number=validation.attempts + 1,
            worker_id=worker_id,
            token_hash=token_hash,
            started_at=tx.now,
            is_counted=False,
            new_files=0,
            bytes_read=0,
        )
        .returning(attempts.c.id)
    ).scalar_one()
    values = {
        "attempt_id": attempt_id,
        "validation_id": validation.id,
        "worker_id": worker_id,
        "token_hash": token_hash,
        "expires_at": expires_at,
        "progress_at": tx.now,
        "deadline_at": deadline_at,
        "progress": {},
    }
    return tx.execute(insert(leases).values(values).returning(leases)).one()


def find_attempt(tx: Transaction, attempt_id: int) -> AttemptRow | None:
    """Return the attempt, whether it has ended or not, or None."""
    return tx.execute(select(attempts).where(attempts.c.id == attempt_id)).one_or_none()


def lock_lease(tx: Transaction, attempt_id: int) -> LeaseRow | None:
    """Return the live lease of an attempt as it is now, or None."""
    statement = select(leases).where(leases.c.attempt_id == attempt_id)
    return tx.execute(statement.with_for_update(key_share=True)).one_or_none()


def lock_lease_of(tx: Transaction, validation_id: int) -> LeaseRow | None:
    """Return the live lease of a validation as it is now, or None."""
    statement = select(leases).where(leases.c.validation_id == validation_id)
    return tx.execute(statement.with_for_update(key_share=True)).one_or_none()


def find_expired(tx: Transaction, *, limit: int) -> list[Row[Any]]:
    """Return (attempt_id, validation_id, checkpoint_id, run_id) of leases that are over, longest first."""
    v = validations.c
    statement = (
        select(leases.c.attempt_id, leases.c.validation_id, v.checkpoint_id, v.run_id)
        .join(validations, v.id == leases.c.validation_id)
        .where(leases.c.expires_at <= tx.now)
        .order_by(leases.c.expires_at, leases.c.attempt_id)
        .limit(limit)
    )
    return list(tx.execute(statement).all())


def extend_lease(
    tx: Transaction,
    attempt_id: int,
    *,
    expires_at: datetime,
    progress_at: datetime,
    deadline_at: datetime,
    progress: Mapping[str, Any],
) -> None:
    """Note that the worker was heard of."""
    tx.execute(
        update(leases)
        .where(leases.c.attempt_id == attempt_id)
        .values(
            expires_at=expires_at,
            progress_at=progress_at,
            deadline_at=deadline_at,
            progress=dict(progress),
        )
    )


def note_progress(tx: Transaction, attempt_id: int) -> None:
    """Note that files advanced; the lease itself is extended by heartbeats alone."""
    tx.execute(update(leases).where(leases.c.attempt_id == attempt_id).values(progress_at=tx.now))


def add_new_files(tx: Transaction, attempt_id: int, *, count: int) -> None:
    """Note file results that no earlier attempt had stored."""
    statement = update(attempts).where(attempts.c.id == attempt_id)
    tx.execute(statement.values(new_files=attempts.c.new_files + count))


def end_attempt_row(
    tx: Transaction,
    lease: LeaseRow,
    *,
    ending: AttemptEnding,
    reason: str,
    is_counted: bool,
    bytes_read: int | None = None,
) -> None:
    """End an attempt, and delete its lease: nothing can be written with it any more."""
    tx.execute(delete(leases).where(leases.c.attempt_id == lease.attempt_id))
    tx.execute(
        update(attempts)
        .where(attempts.c.id == lease.attempt_id, attempts.c.ended_at.is_(None))
        .values(
            ended_at=tx.now,
            ending=ending.value,
            reason=storable(reason),
            is_counted=is_counted,
            bytes_read=int(lease.progress.get("bytes_done", 0)) if bytes_read is None else bytes_read,
        )
    )


def attempts_of(tx: Transaction, validation_ids: Collection[int]) -> list[AttemptRow]:
    """Return the attempts of these validations, oldest first."""
    statement = select(attempts).where(attempts.c.validation_id.in_(validation_ids))
    return list(tx.execute(statement.order_by(attempts.c.id)).all())
