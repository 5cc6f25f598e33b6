"""What a finding means, for whoever met its code on another page."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from ckptguard.errors import NotFoundError
from ckptguard_api.pages.finding_catalogue import catalogue
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import VisitDep

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

_MAX_CODE_CHARS = 40


@router.get("/findings/{code}")
def finding_route(visit: VisitDep, code: Annotated[str, Path(max_length=_MAX_CODE_CHARS)]) -> Response:
    """Say what a code means and what to do."""
    meaning = catalogue().get(code)
    if meaning is None:
        msg = f"no finding is called {code}; it may be of a later version"
        raise NotFoundError(msg)
    return visit.page("finding.html", section="runs", meaning=meaning)
