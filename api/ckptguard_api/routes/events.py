"""`/v1/events`: the audit."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, StringConstraints

from ckptguard.model.manifest_laws import MAX_LABEL_CHARS
from ckptguard.model.service import EventKind
from ckptguard_api.routes.answers import FIRST_LIMIT, Cursor, Limit, PageAnswer
from ckptguard_api.routes.dependencies import ReaderDep, ServicesDep
from ckptguard_api.use_cases.audit import AuditFilter, list_audit

router = APIRouter(prefix="/v1/events", tags=["events"])


class EventAnswer(BaseModel):
    """One fact; `data` depends on its kind."""

    id: int
    at: datetime
    kind: str
    actor: str
    run: str | None
    checkpoint_id: int | None
    validation_id: int | None
    data: Mapping[str, Any]


@router.get("")
def list_events_route(
    *,
    caller: ReaderDep,
    services: ServicesDep,
    run: Annotated[str, StringConstraints(min_length=1, max_length=MAX_LABEL_CHARS)] | None = None,
    checkpoint: Annotated[int, Query(ge=1, le=2**63 - 1)] | None = None,
    kind: EventKind | None = None,
    limit: Limit = FIRST_LIMIT,
    cursor: Cursor = None,
) -> PageAnswer[EventAnswer]:
    """List the audit of the project, newest first."""
    page = list_audit(
        services,
        project_id=caller.project_id,
        wanted=AuditFilter(run=run, checkpoint_id=checkpoint, kind=kind),
        by=caller.actor,
        cursor=cursor,
        limit=limit,
    )
    items = [
        EventAnswer(**{name: getattr(row, name) for name in EventAnswer.model_fields}) for row in page.items
    ]
    return PageAnswer(items=items, next=page.next)
