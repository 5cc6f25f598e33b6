"""`/v1/runs`: make, change, list, look at."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row

from ckptguard.model.policy import NumericsMode
from ckptguard.model.verdict import Assurance, Provenance, Verdict
from ckptguard_api.domain.run_policy import (
    MAX_FQNS,
    MAX_GPUS,
    MAX_MIN_STEPS,
    RunPolicy,
    policy_of,
    policy_values,
)
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, Limit, PageAnswer
from ckptguard_api.routes.dependencies import ReaderDep, RegistrarDep, ServicesDep
from ckptguard_api.use_cases import runs
from ckptguard_api.use_cases.runs import RunOverview

router = APIRouter(prefix="/v1/runs", tags=["runs"])

RunPath = Annotated[str, Path(max_length=256)]


class PolicyChange(BaseModel):
    """The policy of a run; what is left out stays as it is, or as it is by default."""

    model_config = ConfigDict(extra="forbid")

    min_assurance: Assurance = Assurance.LOADED
    min_provenance: Provenance | None = None
    numerics: NumericsMode = NumericsMode.REPORT
    required_fqns: Annotated[list[str], Field(max_length=MAX_FQNS)] = []
    gpus: Annotated[int, Field(ge=1, le=MAX_GPUS, strict=True)] | None = None
    usd_per_gpu_hour: Annotated[float, Field(allow_inf_nan=False)] | None = None
    unprotected_after_s: Annotated[float, Field(allow_inf_nan=False)] | None = None
    min_steps: Annotated[int, Field(ge=0, le=MAX_MIN_STEPS, strict=True)] = 20

    def changes(self) -> dict[str, Any]:
        """Return the fields of `RunPolicy` that were sent."""
        sent = {name: getattr(self, name) for name in self.model_fields_set if name != "name"}
        if "required_fqns" in sent:
            sent["required_fqns"] = tuple(sent["required_fqns"])
        return sent


class RunRequest(PolicyChange):
    """A run that is to be."""

    name: str


class ExposureAnswer(BaseModel):
    """What a failure now would cost; null: not known."""

    seconds: float | None
    steps: int | None
    gpu_hours: float | None
    usd: float | None


class NewestAnswer(BaseModel):
    """The newest checkpoint of a kind."""

    id: int
    branch: int
    step: int
    created_at: datetime
    verdict: Verdict | None
    assurance: Assurance | None


class RunAnswer(BaseModel):
    """A run with its policy, and how well it is protected.

    `counts` is by verdict in force, `none` without one, of all but deleted checkpoints.
    """

    name: str
    created_at: datetime
    revision: int
    branch: int
    min_assurance: Assurance
    min_provenance: Provenance | None
    numerics: NumericsMode
    required_fqns: list[str]
    gpus: int | None
    usd_per_gpu_hour: float | None
    unprotected_after_s: float | None
    min_steps: int
    counts: Mapping[str, int]
    lifecycles: Mapping[str, int]
    open_validations: int
    newest: NewestAnswer | None
    newest_valid: NewestAnswer | None
    exposure: ExposureAnswer
    step_went_back_at: datetime | None
    restarts_failing_at: datetime | None


@router.post("", status_code=201, responses={200: {"model": RunAnswer, "description": "It was there."}})
def create_run_route(
    body: RunRequest, caller: RegistrarDep, services: ServicesDep, response: Response
) -> RunAnswer:
    """Make a run; the same again is the same run."""
    overview, is_new = runs.create_run(
        services,
        project_id=caller.project_id,
        name=body.name,
        policy=RunPolicy(**body.changes()),
        actor=caller.actor,
    )
    response.status_code = 201 if is_new else 200
    return _answer(overview)


@router.patch("/{run}")
def change_run_route(
    run: RunPath, body: PolicyChange, caller: RegistrarDep, services: ServicesDep
) -> RunAnswer:
    """Change the policy of a run."""
    overview = runs.change_run(
        services, project_id=caller.project_id, name=run, changes=body.changes(), actor=caller.actor
    )
    return _answer(overview)


@router.get("")
def list_runs_route(
    caller: ReaderDep, services: ServicesDep, limit: Limit = FIRST_LIMIT, cursor: Cursor = None
) -> PageAnswer[RunAnswer]:
    """List runs by name, the last one first."""
    page = runs.list_runs(services, project_id=caller.project_id, cursor=cursor, limit=limit)
    return PageAnswer(items=[_answer(overview) for overview in page.items], next=page.next)


@router.get("/{run}")
def show_run_route(run: RunPath, caller: ReaderDep, services: ServicesDep) -> RunAnswer:
    """Show a run."""
    return _answer(runs.show_run(services, project_id=caller.project_id, name=run))


def _answer(overview: RunOverview) -> RunAnswer:
    row, exposure = overview.row, overview.exposure
    return RunAnswer(
        name=row.name,
        created_at=row.created_at,
        revision=row.revision,
        branch=row.branch,
        **policy_values(policy_of(row)),
        counts=overview.counts.verdicts,
        lifecycles=overview.counts.lifecycles,
        open_validations=overview.counts.open_validations,
        newest=_newest(overview.newest),
        newest_valid=_newest(overview.newest_valid),
        exposure=ExposureAnswer(
            seconds=exposure.seconds, steps=exposure.steps, gpu_hours=exposure.gpu_hours, usd=exposure.usd
        ),
        step_went_back_at=row.step_went_back_at,
        restarts_failing_at=row.restarts_failing_at,
    )


def _newest(row: Row[Any] | None) -> NewestAnswer | None:
    if row is None:
        return None
    return NewestAnswer(**{name: getattr(row, name) for name in NewestAnswer.model_fields})
