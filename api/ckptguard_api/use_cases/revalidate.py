"""Ask for a verdict, or find the one that is asked for already."""

from dataclasses import replace

from ckptguard.model.policy import Depth
from ckptguard.model.service import EventKind, ValidationReason
from ckptguard_api.domain.actor import Actor
from ckptguard_api.domain.reasons import checked_reason
from ckptguard_api.leasing.queue import queue_validation
from ckptguard_api.repositories import history
from ckptguard_api.repositories.events import record
from ckptguard_api.services import Services
from ckptguard_api.use_cases.holds import about_checkpoint, locked_checkpoint


def request_validation(
    services: Services,
    *,
    project_id: int,
    checkpoint_id: int,
    depth: Depth,
    reason: str | None,
    actor: Actor,
) -> tuple[history.ValidationRow, bool]:
    """Queue a validation, or return the open one.

    Args:
        services: Of this process.
        project_id: Whose.
        checkpoint_id: Of which checkpoint.
        depth: How far it is to go.
        reason: For a person; in the audit.
        actor: Who asks.

    Returns:
        The validation, and whether it is new.

    Raises:
        NotFoundError: There is no such checkpoint.
        ConflictError: It is not complete, or its bytes are gone.
        InvalidRequestError: The reason cannot be kept.
    """
    why = None if reason is None else checked_reason(reason)
    with services.database.write() as tx:
        row = locked_checkpoint(tx, project_id, checkpoint_id)
        queued, is_new = queue_validation(
            tx, row, reason=ValidationReason.REQUESTED, depth=depth, actor=actor
        )
        about = replace(about_checkpoint(row), validation_id=queued.id)
        data = {"depth": depth.value, "reason": why, "is_new": is_new}
        record(tx, EventKind.VALIDATION_REQUESTED, actor=actor, about=about, data=data)
        return history.find_validation(tx, project_id, queued.id), is_new
