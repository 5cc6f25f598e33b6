"""One run: what a failure now would cost, its timeline, its checkpoints."""

import shlex
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from ckptguard.model.finding import FindingCode
from ckptguard.model.manifest_laws import MAX_LABEL_CHARS
from ckptguard.model.service import Hold
from ckptguard.model.verdict import Assurance
from ckptguard_api.domain.marks import Mark, mark_of
from ckptguard_api.domain.paging import DEFAULT_LIMIT
from ckptguard_api.pages.asked import address
from ckptguard_api.pages.checkpoint_csv import MAX_ROWS
from ckptguard_api.pages.checkpoint_filters import (
    AGES,
    STATES,
    VERDICTS,
    AskedCheckpoints,
    asked_checkpoints,
)
from ckptguard_api.pages.looked_again import look
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.runs_page import setup_lines
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.repositories.windows import WINDOW_ROWS
from ckptguard_api.routes.answers import Cursor
from ckptguard_api.use_cases.history import list_checkpoints
from ckptguard_api.use_cases.run_story import failure_now, show_run_story

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

SHOWN_STARTS: Final = 20
SHOWN_BRANCHES: Final = 20
SHOWN_PASSED_OVER: Final = 5

RunName = Annotated[str, Path(max_length=MAX_LABEL_CHARS)]
AskedDep = Annotated[AskedCheckpoints, Depends(asked_checkpoints)]

_CHOICES: Final = {
    "verdicts": VERDICTS,
    "codes": tuple(sorted(FindingCode)),
    "assurances": tuple(Assurance),
    "ages": AGES,
    "states": STATES,
    "holds": tuple(Hold),
}


@router.get("/runs/{run}")
def run_route(visit: VisitDep, run: RunName, asked: AskedDep, cursor: Cursor = None) -> Response:
    """Show a run; to htmx its checkpoints alone."""
    seen = look(visit, run=run)
    if seen.is_known:
        return seen.unchanged()
    listed = _listed(visit, run, asked, cursor)
    if visit.is_fragment:
        return visit.page("checkpoints_part.html", run_name=run, **listed)
    story = show_run_story(visit.services, project_id=visit.project_id, name=run)
    answer = visit.page(
        "run.html",
        section="runs",
        run_name=run,
        story=story,
        failure=failure_now(visit.services, story),
        now=story.now,
        marks=tuple(Mark),
        choices=_CHOICES,
        shown={"starts": SHOWN_STARTS, "branches": SHOWN_BRANCHES, "passed_over": SHOWN_PASSED_OVER},
        setup=setup_lines(visit),
        quoted=shlex.quote(run),
        position=seen.news.position,
        **listed,
    )
    return seen.named(answer)


def _listed(visit: Visit, run: str, asked: AskedCheckpoints, cursor: str | None) -> dict[str, Any]:
    now = datetime.now(UTC)
    page = list_checkpoints(
        visit.services,
        project_id=visit.project_id,
        wanted=asked.to_filter(run, now=now),
        cursor=cursor or None,
        limit=DEFAULT_LIMIT,
    )
    here = visit.path("runs", run)
    fields = asked.to_fields() | {"as_of": (asked.as_of or now.isoformat()) if asked.age else ""}
    return {
        "rows": page.items,
        "mark_of": mark_of,
        "asked": asked,
        "next": None if page.next is None else address(here, fields | {"cursor": page.next}),
        "first": address(here, asked.to_fields() | {"as_of": ""}) if cursor else None,
        "csv": address(visit.path("runs", run, "checkpoints.csv"), fields),
        "csv_rows": MAX_ROWS,
        "window": WINDOW_ROWS,
        "limit": DEFAULT_LIMIT,
    }
