"""How far a running validation is: its lease, and the files that have a result already."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select

from ckptguard.model.service import ValidationState
from ckptguard_api.database import Transaction
from ckptguard_api.tables import attempts, file_results, leases, manifests, parts, validations, workers


def lease_of(tx: Transaction, validation_id: int) -> Row[Any] | None:
    """Return the live lease of a validation, or None.

    Returns:
        Columns of `leases`, and `number`, `started_at`, `new_files`, `worker` (its name) and `seen_at`.
    """
    statement = (
        select(
            leases,
            attempts.c.number,
            attempts.c.started_at,
            attempts.c.new_files,
            workers.c.name.label("worker"),
            workers.c.seen_at,
        )
        .join(attempts, attempts.c.id == leases.c.attempt_id)
        .join(workers, workers.c.id == leases.c.worker_id)
        .where(leases.c.validation_id == validation_id)
    )
    return tx.execute(statement).one_or_none()


def running_validation(tx: Transaction, checkpoint_id: int) -> int | None:
    """Return the id of the running validation of a checkpoint, or None."""
    statement = select(validations.c.id).where(
        validations.c.checkpoint_id == checkpoint_id, validations.c.state == ValidationState.RUNNING.value
    )
    found: int | None = tx.execute(statement.order_by(validations.c.id.desc()).limit(1)).scalar_one_or_none()
    return found


def files_read(tx: Transaction, validation_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return `path` and `state` of the files that have a result, in no order that means anything."""
    statement = select(file_results.c.path, file_results.c.state)
    statement = statement.where(file_results.c.validation_id == validation_id)
    return tx.execute(statement.limit(limit)).all()


def manifest_bodies(tx: Transaction, checkpoint_id: int, *, limit: int) -> Sequence[Row[Any]]:
    """Return `name` and `body` of the parts of a checkpoint, by name; `body` is None without a manifest."""
    statement = (
        select(parts.c.name, manifests.c.body)
        .outerjoin(manifests, manifests.c.id == parts.c.manifest_id)
        .where(parts.c.checkpoint_id == checkpoint_id)
        .order_by(parts.c.name)
        .limit(limit)
    )
    return tx.execute(statement).all()
