"""The files of a checkpoint: a map of all, a table of them page by page."""

from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from ckptguard_api.domain.file_map import MAX_CELLS, STATE_WORDS, FileCell, FileState
from ckptguard_api.pages.checkpoint_page import ValidationId
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.rendering import SECURITY_HEADERS
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.pages.wording import name, size, words
from ckptguard_api.routes.answers import RowId
from ckptguard_api.use_cases.checkpoint_files import CellPage, list_cells, show_file_map

router = APIRouter(prefix=f"{IN_PROJECT}/checkpoints/{{checkpoint_id}}", include_in_schema=False)

CELLS_AT_ONCE: Final = 1000
"""As `file_map.js` asks for them."""
_ROWS: Final = 100
# A verdict never changes, so neither does its map.
_FOR_GOOD: Final = {"Cache-Control": "private, max-age=3600"}

Start = Annotated[int, Query(ge=0, le=MAX_CELLS * 2)]


@router.get("/files.json")
def map_route(visit: VisitDep, checkpoint_id: RowId, validation: ValidationId = None) -> Response:
    """Return the answer about each file, a letter each, in the order of the map."""
    mapped = show_file_map(
        visit.services, project_id=visit.project_id, checkpoint_id=checkpoint_id, validation_id=validation
    )
    counts = mapped.map.counts
    return _json(
        {
            "validation": mapped.validation_id,
            "states": mapped.map.states,
            "left_out": mapped.map.left_out,
            "words": {state.value: text for state, text in STATE_WORDS.items()},
            "counts": [[state.value, count] for state, count in counts.items()],
        },
        is_for_good=validation is not None,
    )


@router.get("/cells.json")
def cells_route(
    visit: VisitDep, checkpoint_id: RowId, start: Start = 0, validation: ValidationId = None
) -> Response:
    """Return names, sizes and findings of the files from one place of the map on."""
    page = _cells(visit, checkpoint_id, validation=validation, start=start, limit=CELLS_AT_ONCE)
    return _json([_cell(cell) for cell in page.cells], is_for_good=validation is not None)


@router.get("/files")
def files_route(
    visit: VisitDep,
    checkpoint_id: RowId,
    start: Start = 0,
    state: FileState | None = None,
    validation: ValidationId = None,
) -> Response:
    """Show the files in a table."""
    page = _cells(visit, checkpoint_id, validation=validation, start=start, limit=_ROWS, state=state)
    return visit.page(
        "checkpoint_files.html",
        section="runs",
        tab="files",
        row=page.mapped.row,
        page=page,
        state=state,
        start=start,
        validation=validation,
        words_of=STATE_WORDS,
    )


def _cells(
    visit: Visit,
    checkpoint_id: int,
    *,
    validation: int | None,
    start: int,
    limit: int,
    state: FileState | None = None,
) -> CellPage:
    return list_cells(
        visit.services,
        project_id=visit.project_id,
        checkpoint_id=checkpoint_id,
        validation_id=validation,
        start=start,
        limit=limit,
        state=state,
    )


def _cell(cell: FileCell) -> list[object]:
    fault = cell.fault
    told = None if fault is None else f"{words(fault.code)}: {name(fault.message)}"
    length = None if cell.length_bytes is None else size(cell.length_bytes)
    return [name(cell.path), length, cell.rank, told]


def _json(value: object, *, is_for_good: bool) -> Response:
    headers = SECURITY_HEADERS | (_FOR_GOOD if is_for_good else {})
    return Response(orjson.dumps(value), media_type="application/json", headers=headers)
