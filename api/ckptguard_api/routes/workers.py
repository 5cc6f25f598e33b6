"""`/v1/workers`: who was heard from, when, and what each does."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy import Row

from ckptguard.model.service import ValidationState
from ckptguard_api.routes.answers import PageAnswer
from ckptguard_api.routes.dependencies import ReaderDep, ServicesDep
from ckptguard_api.routes.validation_answers import ProgressAnswer, progress_answer
from ckptguard_api.use_cases.history import Workers, show_workers

router = APIRouter(prefix="/v1/workers", tags=["workers"])


class DoingAnswer(BaseModel):
    """What a worker does; nothing but the fact for work of another project."""

    lease_id: int | None
    expires_at: datetime
    run: str | None
    checkpoint_id: int | None
    step: int | None
    validation_id: int | None
    progress: ProgressAnswer | None


class WorkerAnswer(BaseModel):
    """A worker; `age_s` is how long it was not heard from."""

    name: str
    first_seen_at: datetime
    seen_at: datetime
    age_s: float
    is_draining: bool
    capabilities: Mapping[str, Any]
    doing: DoingAnswer | None


@router.get("")
def list_workers_route(caller: ReaderDep, services: ServicesDep) -> PageAnswer[WorkerAnswer]:
    """List the workers of this project and of all projects, those heard from last first; 500 at most."""
    known = show_workers(services, project_id=caller.project_id)
    items = [_answer(row, known, is_own=row.leased_project_id == caller.project_id) for row in known.rows]
    return PageAnswer(items=items, next=None)


def _answer(row: Row[Any], known: Workers, *, is_own: bool) -> WorkerAnswer:
    return WorkerAnswer(
        name=row.name,
        first_seen_at=row.first_seen_at,
        seen_at=row.seen_at,
        age_s=max(0.0, (known.now - row.seen_at).total_seconds()),
        is_draining=row.is_draining,
        capabilities=row.capabilities,
        doing=None if row.attempt_id is None else _doing(row, known, is_own=is_own),
    )


def _doing(row: Row[Any], known: Workers, *, is_own: bool) -> DoingAnswer:
    progress = known.progress.get(row.validation_id) if is_own else None
    return DoingAnswer(
        lease_id=row.attempt_id if is_own else None,
        expires_at=row.expires_at,
        run=row.run if is_own else None,
        checkpoint_id=row.checkpoint_id if is_own else None,
        step=row.step if is_own else None,
        validation_id=row.validation_id if is_own else None,
        progress=None if progress is None else progress_answer(ValidationState.RUNNING, progress),
    )
