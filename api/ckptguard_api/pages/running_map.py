"""The map of the files of a validation that runs, as `file_map.js` takes it; then that of its verdict."""

from collections import Counter
from http import HTTPStatus
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Query
from starlette.responses import RedirectResponse, Response

from ckptguard_api.domain.file_map import STATE_WORDS, FileState
from ckptguard_api.domain.files_going import FileGoing
from ckptguard_api.pages.asked import address
from ckptguard_api.pages.file_map import CELLS_AT_ONCE
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.rendering import SECURITY_HEADERS
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.pages.wording import name, size
from ckptguard_api.routes.answers import RowId
from ckptguard_api.use_cases.running import MAX_FILES_MAPPED, RunningFiles, files_of_running

router = APIRouter(prefix=f"{IN_PROJECT}/validations/{{validation_id}}", include_in_schema=False)

_WORDS: Final = {
    **{state.value: text for state, text in STATE_WORDS.items()},
    FileState.LISTED.value: "not read yet",
    FileState.READ.value: "read, nothing against it so far",
}

Start = Annotated[int, Query(ge=0, le=MAX_FILES_MAPPED * 2)]


@router.get("/files.json")
def running_map_route(visit: VisitDep, validation_id: RowId) -> Response:
    """Return the answer so far about each file, a letter each."""
    found = _found(visit, validation_id)
    if not found.is_open:
        return _of_verdict(visit, found, validation_id, "files.json")
    states = "".join(file.state.value for file in found.files)
    counted = Counter(states)
    counts = [[state.value, counted[state.value]] for state in reversed(FileState) if counted[state.value]]
    return _json(
        {"validation": validation_id, "states": states, "left_out": 0, "words": _WORDS, "counts": counts}
    )


@router.get("/cells.json")
def running_cells_route(visit: VisitDep, validation_id: RowId, start: Start = 0) -> Response:
    """Return names and sizes of the files from one place of the map on."""
    found = _found(visit, validation_id)
    if not found.is_open:
        return _of_verdict(visit, found, validation_id, "cells.json", start=start)
    return _json([_cell(file) for file in found.files[start : start + CELLS_AT_ONCE]])


def _found(visit: Visit, validation_id: int) -> RunningFiles:
    return files_of_running(visit.services, project_id=visit.project_id, validation_id=validation_id)


def _of_verdict(visit: Visit, found: RunningFiles, validation_id: int, what: str, **more: int) -> Response:
    path = visit.path("checkpoints", found.checkpoint_id, what)
    target = address(path, {"validation": validation_id, **more})
    return RedirectResponse(target, status_code=HTTPStatus.SEE_OTHER)


def _cell(file: FileGoing) -> list[object]:
    length = None if file.length_bytes is None else size(file.length_bytes)
    return [name(file.path), length or "size not known", None, None]


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json", headers=SECURITY_HEADERS)
