"""One checkpoint: its verdict with the evidence, what was found, what came of it."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from sqlalchemy import Row
from starlette.responses import Response

from ckptguard.model.manifest_laws import MAX_PATH_BYTES
from ckptguard_api.domain.paging import Page
from ckptguard_api.pages.finding_view import finding_views
from ckptguard_api.pages.ladder import ladder_of
from ckptguard_api.pages.looked_again import look
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.rendering import SECURITY_HEADERS
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.routes.answers import Cursor, RowId
from ckptguard_api.use_cases import history
from ckptguard_api.use_cases.checkpoint_files import list_grave_files
from ckptguard_api.use_cases.checkpoint_story import show_descent
from ckptguard_api.use_cases.notes import notes_of
from ckptguard_api.use_cases.running import going_of

router = APIRouter(prefix=f"{IN_PROJECT}/checkpoints/{{checkpoint_id}}", include_in_schema=False)

FINDINGS_SHOWN: Final = 100
_GRAVE_SHOWN: Final = 50

ValidationId = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


@router.get("")
def checkpoint_route(visit: VisitDep, checkpoint_id: RowId) -> Response:
    """Show a checkpoint."""
    seen = look(visit)
    if seen.is_known:
        return seen.unchanged()
    detail = history.show_checkpoint(visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id)
    descent = show_descent(visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id)
    grave = list_grave_files(
        visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id, limit=_GRAVE_SHOWN
    )
    in_force = detail.in_force
    answer = visit.page(
        "checkpoint.html",
        section="runs",
        tab="overview",
        row=detail.row,
        checkpoint=detail.row,
        notes=notes_of(visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id),
        detail=detail,
        rungs=() if in_force is None else ladder_of(in_force.checks),
        findings=() if in_force is None else finding_views(in_force.findings, detail.row),
        grave=grave,
        descent=descent,
        going=going_of(visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id),
        position=seen.news.position,
    )
    return seen.named(answer)


@router.get("/going.part")
def going_route(visit: VisitDep, checkpoint_id: RowId) -> Response:
    """Show how far the running validation of a checkpoint is; nothing where none runs."""
    going = going_of(visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id)
    return visit.page("checkpoint_going.html", going=going)


@router.get("/findings")
def findings_route(
    visit: VisitDep, checkpoint_id: RowId, validation: ValidationId = None, cursor: Cursor = None
) -> Response:
    """Show findings of a validation, the one in force where none is named."""
    detail = history.show_checkpoint(visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id)
    in_force = None if detail.in_force is None else detail.in_force.row.id
    chosen = validation or in_force
    page: Page[Row[Any]] = Page(items=()) if chosen is None else _findings(visit, chosen, cursor)
    return visit.page(
        "findings_part.html" if visit.is_fragment else "checkpoint_findings.html",
        section="runs",
        tab="overview",
        row=detail.row,
        validation_id=chosen,
        findings=finding_views(page.items, detail.row),
        following=page.next,
        is_first=cursor is None,
    )


def _findings(visit: Visit, validation_id: int, cursor: str | None) -> Page[Row[Any]]:
    return history.list_findings(
        visit.services,
        project_id=visit.project_id,
        validation_id=validation_id,
        cursor=cursor,
        limit=FINDINGS_SHOWN,
    )


@router.get("/manifest.json")
def manifest_route(
    visit: VisitDep,
    checkpoint_id: RowId,
    part: Annotated[str | None, Query(max_length=MAX_PATH_BYTES)] = None,
) -> Response:
    """Give out the manifest of a part, as it was registered."""
    text = history.show_manifest(
        visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id, part=part
    )
    headers = {"Content-Disposition": 'attachment; filename="ckptguard.manifest.json"'}
    return Response(text, media_type="application/json", headers=SECURITY_HEADERS | headers)
