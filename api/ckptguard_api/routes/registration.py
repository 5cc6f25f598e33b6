"""What a training job tells: that a save is coming, and that it is there."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from ckptguard_api.domain.registration import (
    DEFAULT_KEEP_ALIVE_S,
    MAX_KEEP_ALIVE_S,
    MIN_KEEP_ALIVE_S,
    Announcement,
)
from ckptguard_api.routes.bodies import RawBody
from ckptguard_api.routes.checkpoint_answers import CheckpointAnswer, checkpoint_answer
from ckptguard_api.routes.dependencies import RegistrarDep, ServicesDep
from ckptguard_api.routes.registration_body import (
    Branch,
    LocationRequest,
    Step,
    parse_registration,
    request_schema,
)
from ckptguard_api.routes.validation_answers import ValidationAnswer, validation_answer
from ckptguard_api.use_cases.announce import announce
from ckptguard_api.use_cases.history import ValidationDetail
from ckptguard_api.use_cases.register import register

router = APIRouter(prefix="/v1/runs/{run}", tags=["training job"])

_SAME: Final[dict[int | str, dict[str, Any]]] = {200: {"description": "It was known, and is the same."}}
_REGISTRATION_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": request_schema()}},
    }
}

RunName = Annotated[str, Path(min_length=1, max_length=256)]


class AnnouncementRequest(BaseModel):
    """A save is coming; sent again, it is still coming."""

    model_config = ConfigDict(extra="forbid")

    step: Step
    location: LocationRequest
    save_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    keep_alive_s: Annotated[float, Field(strict=True, ge=MIN_KEEP_ALIVE_S, le=MAX_KEEP_ALIVE_S)] = (
        DEFAULT_KEEP_ALIVE_S
    )
    branch: Branch | None = None


class AnnouncementAnswer(CheckpointAnswer):
    """What is expected now.

    Its `save_id`, sent with the next announcement, keeps this one alive and does nothing else.
    """

    superseded: list[int]


class RegistrationAnswer(BaseModel):
    """What became of a registration."""

    checkpoint: CheckpointAnswer
    validation: ValidationAnswer | None
    is_new: bool
    superseded: list[int]
    notes: list[str]


@router.post("/announcements", status_code=201, responses=_SAME)
def announce_route(
    run: RunName, body: AnnouncementRequest, caller: RegistrarDep, services: ServicesDep, response: Response
) -> AnnouncementAnswer:
    """Expect a save, or go on expecting it; what lies at its location is superseded."""
    request = Announcement(
        run=run,
        step=body.step,
        location=body.location.asked(),
        save_id=body.save_id,
        keep_alive_s=body.keep_alive_s,
        branch=body.branch,
    )
    announced = announce(services, request, project_id=caller.project_id, actor=caller.actor)
    response.status_code = 201 if announced.is_new else 200
    checkpoint = checkpoint_answer(announced.checkpoint)
    return AnnouncementAnswer(**checkpoint.model_dump(), superseded=list(announced.superseded))


@router.post("/checkpoints", status_code=201, responses=_SAME, openapi_extra=_REGISTRATION_BODY)
def register_route(
    run: RunName, body: RawBody, caller: RegistrarDep, services: ServicesDep, response: Response
) -> RegistrationAnswer:
    """Register a save, or one part of it, and queue its validation."""
    request = parse_registration(run, body)
    registered = register(services, request, project_id=caller.project_id, actor=caller.actor)
    response.status_code = 201 if registered.is_new else 200
    validation = registered.validation
    return RegistrationAnswer(
        checkpoint=checkpoint_answer(registered.checkpoint),
        validation=None if validation is None else validation_answer(ValidationDetail(row=validation)),
        is_new=registered.is_new,
        superseded=list(registered.superseded),
        notes=list(registered.notes),
    )
