"""Pin, quarantine, release, deleted: what an operator says about a checkpoint, always with a reason."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ckptguard.model.service import Hold
from ckptguard_api.domain.reasons import MAX_REASON_CHARS
from ckptguard_api.routes.answers import RowId
from ckptguard_api.routes.checkpoint_answers import CheckpointAnswer, checkpoint_answer
from ckptguard_api.routes.dependencies import AdminDep, ServicesDep
from ckptguard_api.use_cases.deletions import mark_deleted
from ckptguard_api.use_cases.holds import Releasable, hold_checkpoint, release_checkpoint

router = APIRouter(prefix="/v1/checkpoints/{checkpoint_id}", tags=["holds"])


class HoldRequest(BaseModel):
    """Why."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON_CHARS)]


class ReleaseRequest(HoldRequest):
    """Which hold, and why; without `hold` all that are set. Damage is lifted only by its name."""

    hold: Releasable | None = None


@router.post("/pin")
def pin_route(
    checkpoint_id: RowId, body: HoldRequest, caller: AdminDep, services: ServicesDep
) -> CheckpointAnswer:
    """Keep a checkpoint: it cannot be marked as deleted."""
    row = hold_checkpoint(
        services,
        project_id=caller.project_id,
        checkpoint_id=checkpoint_id,
        hold=Hold.PINNED,
        reason=body.reason,
        actor=caller.actor,
    )
    return checkpoint_answer(row)


@router.post("/quarantine")
def quarantine_route(
    checkpoint_id: RowId, body: HoldRequest, caller: AdminDep, services: ServicesDep
) -> CheckpointAnswer:
    """Forbid a checkpoint: it is no resume target any more."""
    row = hold_checkpoint(
        services,
        project_id=caller.project_id,
        checkpoint_id=checkpoint_id,
        hold=Hold.QUARANTINED,
        reason=body.reason,
        actor=caller.actor,
    )
    return checkpoint_answer(row)


@router.post("/release")
def release_route(
    checkpoint_id: RowId, body: ReleaseRequest, caller: AdminDep, services: ServicesDep
) -> CheckpointAnswer:
    """Lift a hold, or damage that another worker did not find."""
    row = release_checkpoint(
        services,
        project_id=caller.project_id,
        checkpoint_id=checkpoint_id,
        what=body.hold,
        reason=body.reason,
        actor=caller.actor,
    )
    return checkpoint_answer(row)


@router.post("/deleted")
def deleted_route(
    checkpoint_id: RowId, body: HoldRequest, caller: AdminDep, services: ServicesDep
) -> CheckpointAnswer:
    """Say that the bytes of a checkpoint are gone."""
    row = mark_deleted(
        services,
        project_id=caller.project_id,
        checkpoint_id=checkpoint_id,
        reason=body.reason,
        actor=caller.actor,
    )
    return checkpoint_answer(row)
