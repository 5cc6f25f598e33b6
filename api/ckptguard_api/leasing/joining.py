"""A worker asks for work: it is known from then on."""

from datetime import timedelta
from typing import Final

from ckptguard.errors import ForbiddenError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Transaction
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.workers import WorkerRow, change_worker, insert_worker, lock_worker

FRESH_FOR: Final = timedelta(seconds=15)
"""A worker that only polls is written down this often: below `worker_heard_within_s`."""


def is_known(tx: Transaction, row: WorkerRow | None, *, capabilities: Capabilities, actor: Actor) -> bool:
    """Say whether there is nothing to write down about a worker that asks for work."""
    return row is not None and bool(
        row.capabilities == capabilities.to_json()
        and row.project_id == actor.project_id
        and not row.is_draining
        and abs(tx.now - row.seen_at) < FRESH_FOR
    )


def join(tx: Transaction, *, name: str, capabilities: Capabilities, actor: Actor) -> WorkerRow:
    """Write down that a worker was heard of, and what it can do.

    Raises:
        ForbiddenError: The name belongs to a worker of another project.
        ConflictError: Two of the same name came at the same moment; ask again.
    """
    row = lock_worker(tx, name)
    value = capabilities.to_json()
    if row is None:
        row = insert_worker(tx, name=name, project_id=actor.project_id, capabilities=value)
        about = Subject(project_id=actor.project_id)
        record(tx, EventKind.WORKER_JOINED, actor=actor, about=about, data={"worker": name})
        return row
    if row.project_id != actor.project_id:
        msg = f"the name {name!r} belongs to a worker of another token's project"
        raise ForbiddenError(msg)
    change_worker(tx, row.id, capabilities=value, seen_at=tx.now, is_draining=False)
    return row
