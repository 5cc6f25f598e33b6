"""Workers: who was heard of, when, and what each can do."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, insert, or_, select, update

from ckptguard_api.database import Transaction
from ckptguard_api.tables import checkpoints, leases, runs, validations, workers

WorkerRow = Row[Any]
"""A row of `workers`, all columns."""


def find_worker(tx: Transaction, name: str) -> WorkerRow | None:
    """Return the worker, or None."""
    return tx.execute(select(workers).where(workers.c.name == name)).one_or_none()


def lock_worker(tx: Transaction, name: str) -> WorkerRow | None:
    """Return the worker, and let nobody else change it until the commit, or None."""
    statement = select(workers).where(workers.c.name == name)
    return tx.execute(statement.with_for_update(key_share=True)).one_or_none()


def insert_worker(
    tx: Transaction, *, name: str, project_id: int | None, capabilities: Mapping[str, Any]
) -> WorkerRow:
    """Add a worker that was never heard of before."""
    values = {
        "project_id": project_id,
        "name": name,
        "capabilities": dict(capabilities),
        "first_seen_at": tx.now,
        "seen_at": tx.now,
        "is_draining": False,
        "claims": 0,
    }
    return tx.execute(insert(workers).values(values).returning(workers)).one()


def change_worker(tx: Transaction, worker_id: int, **values: object) -> None:
    """Set columns."""
    tx.execute(update(workers).where(workers.c.id == worker_id).values(values))


def add_claim(tx: Transaction, worker_id: int) -> None:
    """Note that the worker was given an attempt."""
    change_worker(tx, worker_id, claims=workers.c.claims + 1)


def see_worker(tx: Transaction, worker_id: int, *, is_draining: bool) -> None:
    """Note that the worker was heard of."""
    change_worker(tx, worker_id, seen_at=tx.now, is_draining=is_draining)


def list_workers(tx: Transaction, *, project_id: int | None, limit: int = 500) -> list[Row[Any]]:
    """Return workers, those seen last first, each with what it is doing.

    Args:
        tx: The transaction.
        project_id: Those that work for this project: its own, and those of all projects; None: all.
        limit: At most so many.

    Returns:
        Rows of `workers` with `attempt_id`, `validation_id`, `progress`, `expires_at`, `checkpoint_id`,
        `step`, `run` and `leased_project_id`, None where it is idle; age is `tx.now - seen_at`.
    """
    statement = (
        select(
            workers,
            leases.c.attempt_id,
            leases.c.validation_id,
            leases.c.progress,
            leases.c.expires_at,
            checkpoints.c.id.label("checkpoint_id"),
            checkpoints.c.step,
            checkpoints.c.project_id.label("leased_project_id"),
            runs.c.name.label("run"),
        )
        .outerjoin(leases, leases.c.worker_id == workers.c.id)
        .outerjoin(validations, validations.c.id == leases.c.validation_id)
        .outerjoin(checkpoints, checkpoints.c.id == validations.c.checkpoint_id)
        .outerjoin(runs, runs.c.id == validations.c.run_id)
        .order_by(workers.c.seen_at.desc(), workers.c.id, leases.c.attempt_id)
        .limit(limit)
    )
    if project_id is not None:
        statement = statement.where(_works_for(project_id))
    return list(tx.execute(statement).all())


def _works_for(project_id: int) -> Any:  # noqa: ANN401 - a condition of SQLAlchemy
    return or_(workers.c.project_id.is_(None), workers.c.project_id == project_id)
