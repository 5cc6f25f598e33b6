"""The bytes of a checkpoint are gone: what the service is told, never what it does."""

from sqlalchemy import update

from ckptguard.errors import ConflictError
from ckptguard.model.service import EventKind, Lifecycle
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.reasons import checked_reason
from ckptguard_api.leasing.queue import cancel_open
from ckptguard_api.repositories.checkpoint_list import CheckpointRow, find_checkpoint
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.services import Services
from ckptguard_api.tables import checkpoints
from ckptguard_api.use_cases.holds import about_checkpoint, locked_checkpoint


def mark_deleted(
    services: Services, *, project_id: int, checkpoint_id: int, reason: str, actor: Actor
) -> CheckpointRow:
    """Take a checkpoint out of every resume target; its history stays. Told twice, it is deleted once.

    Raises:
        NotFoundError: There is no such checkpoint.
        ConflictError: It is pinned.
        InvalidRequestError: The reason cannot be kept.
    """
    why = checked_reason(reason)
    with services.database.write() as tx:
        row = locked_checkpoint(tx, project_id, checkpoint_id)
        if row.lifecycle != Lifecycle.DELETED:
            if row.is_pinned:
                msg = "the checkpoint is pinned: release it first"
                raise ConflictError(msg)
            values = {
                "lifecycle": Lifecycle.DELETED.value,
                "superseded_by": None,
                "gone_at": tx.now,
                "keep_alive_until": None,
            }
            tx.execute(update(checkpoints).where(checkpoints.c.id == row.id).values(values))
            touch_run(tx, row.run_id)
            cancel_open(tx, row.id, why="the checkpoint is deleted", actor=actor)
            data = {"reason": why}
            record(tx, EventKind.CHECKPOINT_DELETED, actor=actor, about=about_checkpoint(row), data=data)
        return find_checkpoint(tx, project_id, checkpoint_id)
