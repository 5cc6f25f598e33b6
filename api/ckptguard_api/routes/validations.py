"""Validations: ask for one, look at one, what it found, what it binds to."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, StringConstraints

from ckptguard.model.policy import Depth
from ckptguard.model.service import Scope
from ckptguard_api.domain.reasons import MAX_REASON_CHARS
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, FilesLimit, Limit, PageAnswer, RowId
from ckptguard_api.routes.dependencies import Caller, ReaderDep, ServicesDep, requires
from ckptguard_api.routes.validation_answers import (
    ValidationAnswer,
    ValidationDetailAnswer,
    finding_answer,
    validation_answer,
    validation_detail_answer,
)
from ckptguard_api.use_cases import history
from ckptguard_api.use_cases.history import ValidationDetail
from ckptguard_api.use_cases.revalidate import request_validation

router = APIRouter(prefix="/v1", tags=["validations"])

AskerDep = Annotated[Caller, Depends(requires(Scope.REGISTER, Scope.ADMIN))]


class ValidationRequest(BaseModel):
    """How far a validation is to go, and why it is wanted."""

    model_config = ConfigDict(extra="forbid")

    depth: Depth = Depth.LOAD
    reason: Annotated[str, StringConstraints(max_length=MAX_REASON_CHARS)] | None = None


class FileAnswer(BaseModel):
    """What a verdict binds to, of one file."""

    path: str
    length_bytes: int
    checksum: str | None
    version: str | None
    modified_at: datetime | None


class FindingAnswer(BaseModel):
    """A finding (docs/report.md); texts come from the checkpoint and are data only."""

    model_config = ConfigDict(extra="allow")

    number: int
    code: str
    check: str
    severity: str
    message: str
    is_about_checkpoint: bool


@router.post(
    "/checkpoints/{checkpoint_id}/validations",
    status_code=202,
    responses={200: {"model": ValidationAnswer, "description": "One is open already: this one."}},
)
def request_validation_route(
    checkpoint_id: RowId,
    body: ValidationRequest,
    caller: AskerDep,
    services: ServicesDep,
    response: Response,
) -> ValidationAnswer:
    """Ask for a verdict; asking again gives the same validation while it is open."""
    row, is_new = request_validation(
        services,
        project_id=caller.project_id,
        checkpoint_id=checkpoint_id,
        depth=body.depth,
        reason=body.reason,
        actor=caller.actor,
    )
    response.status_code = 202 if is_new else 200
    return validation_answer(ValidationDetail(row=row))


@router.get("/validations/{validation_id}")
def show_validation_route(
    validation_id: RowId, caller: ReaderDep, services: ServicesDep
) -> ValidationDetailAnswer:
    """Show a validation with its attempts and checks."""
    detail = history.show_validation(services, project_id=caller.project_id, validation_id=validation_id)
    return validation_detail_answer(detail)


@router.get("/validations/{validation_id}/findings")
def list_findings_route(
    validation_id: RowId,
    caller: ReaderDep,
    services: ServicesDep,
    limit: Limit = FIRST_LIMIT,
    cursor: Cursor = None,
) -> PageAnswer[FindingAnswer]:
    """List what a validation found, in the order of the report."""
    page = history.list_findings(
        services, project_id=caller.project_id, validation_id=validation_id, cursor=cursor, limit=limit
    )
    items = [FindingAnswer(**finding_answer(row)) for row in page.items]
    return PageAnswer(items=items, next=page.next)


@router.get("/validations/{validation_id}/evidence")
def list_evidence_route(
    validation_id: RowId,
    caller: ReaderDep,
    services: ServicesDep,
    limit: FilesLimit = FIRST_LIMIT,
    cursor: Cursor = None,
) -> PageAnswer[FileAnswer]:
    """List the files that a verdict binds to."""
    page = history.list_evidence(
        services, project_id=caller.project_id, validation_id=validation_id, cursor=cursor, limit=limit
    )
    items = [FileAnswer(**_known(entry)) for entry in page.items]
    return PageAnswer(items=items, next=page.next)


def _known(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry.get(name) for name in FileAnswer.model_fields}
