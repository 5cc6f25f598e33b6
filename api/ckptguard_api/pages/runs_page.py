"""Every run, what needs a person first."""

import shlex
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from ckptguard.model.manifest_laws import MAX_LABEL_CHARS
from ckptguard_api.domain.attention import Attention
from ckptguard_api.domain.marks import Mark
from ckptguard_api.pages.asked import address, choice
from ckptguard_api.pages.looked_again import look
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.strip import strip
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.use_cases.access import DEFAULT_PROJECT
from ckptguard_api.use_cases.run_board import Board, show_board

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

ANY_PERSON: Final = "person"
"""Filter: all that somebody should look at."""

_MAX_PAGES: Final = 10_000
_MAX_WORD: Final = 40

NamePart = Annotated[str, Query(max_length=MAX_LABEL_CHARS)]
Word = Annotated[str, Query(max_length=_MAX_WORD)]
PageNumber = Annotated[int, Query(ge=1, le=_MAX_PAGES)]


@router.get("/runs")
def runs_route(visit: VisitDep, q: NamePart = "", attention: Word = "", page: PageNumber = 1) -> Response:
    """List the runs."""
    seen = look(visit)
    if seen.is_known:
        return seen.unchanged()
    board = show_board(
        visit.services,
        project_id=visit.project_id,
        name_part=q.strip() or None,
        wanted=_wanted(attention),
        page=page,
    )
    answer = visit.page(
        "runs_part.html" if visit.is_fragment else "runs.html",
        section="runs",
        board=board,
        strips={run.row.id: strip(run.strip) for run in board.shown},
        marks=tuple(Mark),
        q=q,
        attention=attention,
        choices=tuple(Attention),
        needing=sum(board.counts[one] for one in Attention if one.needs_person),
        neighbours=_neighbours(visit, board, q=q, attention=attention),
        setup=setup_lines(visit),
        position=seen.news.position,
    )
    return seen.named(answer)


def setup_lines(visit: Visit) -> str:
    """Return the commands that let a shell speak to this service, and to this project."""
    url = str(visit.request.base_url).rstrip("/")
    lines = [f"export CKPTGUARD_URL={shlex.quote(url)}"]
    if visit.project != DEFAULT_PROJECT:
        lines.append(f"export CKPTGUARD_PROJECT={shlex.quote(visit.project)}")
    lines.append(
        "export CKPTGUARD_TOKEN=ckg_…   # ckptguard token create trainer --scope register --scope read"
    )
    return "\n".join(lines)


def _wanted(attention: str) -> frozenset[Attention] | None:
    if attention == ANY_PERSON:
        return frozenset(one for one in Attention if one.needs_person)
    one = choice(Attention, attention, field="attention")
    return None if one is None else frozenset({one})


def _neighbours(visit: Visit, board: Board, *, q: str, attention: str) -> dict[str, str | None]:
    def at(page: int) -> str:
        fields = {"q": q, "attention": attention, "page": page if page > 1 else None}
        return address(visit.path("runs"), fields)

    return {
        "previous": at(board.page - 1) if board.page > 1 else None,
        "next": at(board.page + 1) if board.page < board.pages else None,
    }
