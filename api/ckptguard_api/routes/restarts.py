"""`/v1/runs/{run}/restarts`: what became of a start."""

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from ckptguard.model.manifest_laws import MAX_INTEGER
from ckptguard.model.service import RestartOutcome
from ckptguard_api.domain.restart_report import MAX_NODES, RestartReport
from ckptguard_api.routes.dependencies import RegistrarDep, ServicesDep
from ckptguard_api.use_cases.restarts import report_restart

router = APIRouter(prefix="/v1/runs", tags=["restarts"])


class RestartRequest(BaseModel):
    """One start, and what became of it; `run` repeats the name where `is_fresh_despite`."""

    model_config = ConfigDict(extra="forbid")

    attempt: str
    outcome: RestartOutcome
    checkpoint_id: Annotated[int, Field(ge=1, le=2**63 - 1, strict=True)] | None = None
    nodes: Annotated[list[str], Field(max_length=MAX_NODES)] | None = None
    steps_done: Annotated[int, Field(ge=0, le=MAX_INTEGER, strict=True)] | None = None
    detail: str | None = None
    is_fresh_despite: bool | None = None
    run: str | None = None


class RestartAnswer(BaseModel):
    """The run's branch, and whether this start opened it."""

    branch: int
    opened: bool


@router.post(
    "/{run}/restarts",
    status_code=201,
    responses={200: {"model": RestartAnswer, "description": "It was told before."}},
)
def report_restart_route(
    run: Annotated[str, Path(max_length=256)],
    body: RestartRequest,
    caller: RegistrarDep,
    services: ServicesDep,
    response: Response,
) -> RestartAnswer:
    """Tell what became of a start; told twice, it counts once."""
    report = RestartReport(
        attempt=body.attempt,
        outcome=body.outcome,
        checkpoint_id=body.checkpoint_id,
        nodes=tuple(body.nodes or ()),
        steps_done=body.steps_done,
        detail=body.detail,
        is_fresh_despite=bool(body.is_fresh_despite),
        repeated_run=body.run,
    )
    told = report_restart(
        services, project_id=caller.project_id, run_name=run, report=report, actor=caller.actor
    )
    response.status_code = 201 if told.is_new else 200
    return RestartAnswer(branch=told.branch, opened=told.opened)
