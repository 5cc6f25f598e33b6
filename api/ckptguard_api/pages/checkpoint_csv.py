"""A run's checkpoints as CSV, for a spreadsheet: streamed, bounded, and no cell is a formula."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response, StreamingResponse

from ckptguard.model.manifest_laws import MAX_LABEL_CHARS
from ckptguard_api.domain.checkpoint_filter import CheckpointFilter
from ckptguard_api.domain.paging import MAX_LIMIT, Page
from ckptguard_api.pages.checkpoint_filters import AskedCheckpoints, asked_checkpoints
from ckptguard_api.pages.csv_answer import safe_cell
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.repositories.checkpoint_list import HOLD_COLUMNS, CheckpointRow
from ckptguard_api.use_cases.history import list_checkpoints

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

MAX_ROWS: Final = 100_000
"""Rows of a file: the newest that pass the filters."""

_COLUMNS: Final = (
    "run", "branch", "step", "save_id", "created_at", "registered_at", "lifecycle", "superseded_by",
    "verdict", "basis", "assurance", "provenance", "device", "validated_at", "validation_state",
)  # fmt: skip
_LAST_COLUMNS: Final = ("format", "num_files", "bytes_total", "store", "path", "location", "id")
_UNSAFE_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_CHARS: Final = 80

RunName = Annotated[str, Path(max_length=MAX_LABEL_CHARS)]


@router.get("/runs/{run}/checkpoints.csv")
def checkpoints_csv_route(
    visit: VisitDep, run: RunName, asked: Annotated[AskedCheckpoints, Depends(asked_checkpoints)]
) -> Response:
    """Return the checkpoints that pass the filters, in the order of the run, newest first."""
    wanted = asked.to_filter(run, now=datetime.now(UTC))
    first = _page(visit, wanted, None)  # an unknown run is told before the file begins
    name = _UNSAFE_IN_NAME.sub("_", run).strip("._")[:_MAX_NAME_CHARS] or "run"
    return StreamingResponse(
        _lines(visit, wanted, first),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}-checkpoints.csv"'},
    )


def _lines(visit: Visit, wanted: CheckpointFilter, first: Page[CheckpointRow]) -> Iterator[str]:
    # Each page is a transaction of its own: nobody who reads slowly holds one.
    yield _text([(*_COLUMNS, "holds", *_LAST_COLUMNS)])
    page, written = first, 0
    while True:
        rows = page.items[: MAX_ROWS - written]
        written += len(rows)
        yield _text(_cells(row) for row in rows)
        if page.next is None or written >= MAX_ROWS:
            return
        page = _page(visit, wanted, page.next)


def _page(visit: Visit, wanted: CheckpointFilter, cursor: str | None) -> Page[CheckpointRow]:
    return list_checkpoints(
        visit.services, project_id=visit.project_id, wanted=wanted, cursor=cursor, limit=MAX_LIMIT
    )


def _cells(row: CheckpointRow) -> tuple[object, ...]:
    holds = " ".join(hold.value for hold, column in HOLD_COLUMNS.items() if getattr(row, column))
    return (*_values(row, _COLUMNS), holds, *_values(row, _LAST_COLUMNS))


def _values(row: CheckpointRow, names: Iterable[str]) -> Iterator[object]:
    for name in names:
        value = getattr(row, name)
        yield safe_cell(value.isoformat() if isinstance(value, datetime) else value)


def _text(rows: Any) -> str:  # noqa: ANN401 - rows of cells
    target = io.StringIO()
    csv.writer(target).writerows(rows)
    return target.getvalue()
