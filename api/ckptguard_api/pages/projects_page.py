"""Every project that a token of all projects may see."""

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from ckptguard_api.pages.paths import PROJECTS
from ckptguard_api.pages.visit import VisitDep
from ckptguard_api.use_cases.projects import projects_seen_by

router = APIRouter(include_in_schema=False)

_MAX_SHOWN: Final = 500


@router.get(PROJECTS)
def projects_route(visit: VisitDep) -> Response:
    """List the projects."""
    projects = projects_seen_by(visit.services, visit.actor, after_id=None, limit=_MAX_SHOWN)
    return visit.page("projects.html", projects=projects)
