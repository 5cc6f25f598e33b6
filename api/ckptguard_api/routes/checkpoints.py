"""`/v1/checkpoints`: lists, one, its validations, its manifest."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import AwareDatetime, StringConstraints

from ckptguard.errors import InvalidRequestError
from ckptguard.model.finding import FindingCode
from ckptguard.model.manifest_laws import MAX_INTEGER, MAX_LABEL_CHARS, MAX_PATH_BYTES
from ckptguard.model.service import Hold, Lifecycle
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard_api.domain.checkpoint_filter import CheckpointFilter, OpenState
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, Limit, PageAnswer, RowId
from ckptguard_api.routes.checkpoint_answers import (
    CheckpointAnswer,
    CheckpointDetailAnswer,
    checkpoint_answer,
    checkpoint_detail_answer,
)
from ckptguard_api.routes.dependencies import ReaderDep, ServicesDep
from ckptguard_api.routes.validation_answers import ValidationAnswer, validation_answer
from ckptguard_api.use_cases import history

router = APIRouter(prefix="/v1/checkpoints", tags=["checkpoints"])

RunName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LABEL_CHARS)]
StepNumber = Annotated[int, Query(ge=0, le=MAX_INTEGER)]


async def _wanted(  # noqa: PLR0913 - one parameter for each filter
    *,
    run: RunName | None = None,
    verdict: Verdict | Literal["none"] | None = None,
    assurance: Assurance | None = None,
    code: FindingCode | None = None,
    lifecycle: Lifecycle | None = None,
    hold: Hold | None = None,
    state: OpenState | None = None,
    step: StepNumber | None = None,
    min_step: StepNumber | None = None,
    max_step: StepNumber | None = None,
    newer_than: AwareDatetime | None = None,
    older_than: AwareDatetime | None = None,
) -> CheckpointFilter:
    return CheckpointFilter(
        run=run,
        verdict=verdict,
        assurance=assurance,
        code=code,
        lifecycle=lifecycle,
        hold=hold,
        state=state,
        step=step,
        min_step=min_step,
        max_step=max_step,
        newer_than=_utc(newer_than, field="newer_than"),
        older_than=_utc(older_than, field="older_than"),
    )


@router.get("")
def list_checkpoints_route(
    caller: ReaderDep,
    services: ServicesDep,
    wanted: Annotated[CheckpointFilter, Depends(_wanted)],
    limit: Limit = FIRST_LIMIT,
    cursor: Cursor = None,
) -> PageAnswer[CheckpointAnswer]:
    """List checkpoints, newest first.

    With `run` in the order of the run (branch, step, time), else by the time of the save. A page may be
    short while `next` is set: filters that pick few of many look at a bounded number at a time.
    """
    page = history.list_checkpoints(
        services, project_id=caller.project_id, wanted=wanted, cursor=cursor, limit=limit
    )
    return PageAnswer(items=[checkpoint_answer(row) for row in page.items], next=page.next)


@router.get("/{checkpoint_id}")
def show_checkpoint_route(
    checkpoint_id: RowId, caller: ReaderDep, services: ServicesDep
) -> CheckpointDetailAnswer:
    """Show a checkpoint with its parts, the verdict in force, holds and history."""
    detail = history.show_checkpoint(services, project_id=caller.project_id, checkpoint_id=checkpoint_id)
    return checkpoint_detail_answer(detail)


@router.get("/{checkpoint_id}/validations")
def list_validations_route(
    checkpoint_id: RowId,
    caller: ReaderDep,
    services: ServicesDep,
    limit: Limit = FIRST_LIMIT,
    cursor: Cursor = None,
) -> PageAnswer[ValidationAnswer]:
    """List the validations of a checkpoint, newest first."""
    page = history.list_validations(
        services, project_id=caller.project_id, checkpoint_id=checkpoint_id, cursor=cursor, limit=limit
    )
    return PageAnswer(items=[validation_answer(detail) for detail in page.items], next=page.next)


@router.get(
    "/{checkpoint_id}/manifest",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
def show_manifest_route(
    checkpoint_id: RowId,
    caller: ReaderDep,
    services: ServicesDep,
    part: Annotated[str | None, Query(max_length=MAX_PATH_BYTES)] = None,
) -> Response:
    """Return the manifest of a part as it was registered (docs/manifest.md)."""
    text = history.show_manifest(
        services, project_id=caller.project_id, checkpoint_id=checkpoint_id, part=part
    )
    return Response(text, media_type="application/json")


def _utc(moment: datetime | None, *, field: str) -> datetime | None:
    try:
        return None if moment is None else moment.astimezone(UTC)
    except OverflowError as error:
        msg = "a filter means nothing"
        problem = f"/query/{field}: a time before the year 1 or after the year 9999"
        raise InvalidRequestError(msg, problems=[problem]) from error
