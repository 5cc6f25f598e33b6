"""One validation: how far it is while it runs, what came of each attempt, and its verdict."""

from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.responses import Response

from ckptguard.model.service import ValidationState
from ckptguard_api.pages.finding_view import finding_views
from ckptguard_api.pages.live_stream import live_position
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import VisitDep
from ckptguard_api.use_cases.history import list_findings
from ckptguard_api.use_cases.running import can_be_mapped, watch_validation

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

_FINDINGS_SHOWN: Final = 20
_OPEN: Final = (ValidationState.QUEUED, ValidationState.RUNNING)

ValidationId = Annotated[int, Path(ge=1, le=2**63 - 1)]


@router.get("/validations/{validation_id}")
def validation_route(validation_id: ValidationId, visit: VisitDep) -> Response:
    """Show one validation; while it is open the page follows it."""
    position = live_position(visit)
    watched = watch_validation(visit.services, project_id=visit.project_id, validation_id=validation_id)
    findings = list_findings(
        visit.services,
        project_id=visit.project_id,
        validation_id=validation_id,
        cursor=None,
        limit=_FINDINGS_SHOWN,
    )
    return visit.page(
        "validation_body.html" if visit.is_fragment else "validation.html",
        section="runs",
        watched=watched,
        now=watched.now,
        row=watched.row,
        checkpoint=watched.checkpoint,
        findings=finding_views(findings.items, watched.checkpoint),
        following=findings.next,
        is_open=watched.row.state in _OPEN,
        is_mapped=can_be_mapped(watched.checkpoint),
        position=position,
    )
