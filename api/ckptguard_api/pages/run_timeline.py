"""What `run.js` draws of a run: its newest checkpoints, as columns, as short as they can be said."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Path
from sqlalchemy import Row
from starlette.responses import Response

from ckptguard.model.manifest_laws import MAX_LABEL_CHARS
from ckptguard.model.service import Lifecycle
from ckptguard_api.domain.marks import Mark, mark_of_kind
from ckptguard_api.domain.starts import Start
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import VisitDep
from ckptguard_api.repositories.run_story import TIMELINE_COLUMNS
from ckptguard_api.use_cases.run_story import Timeline, read_timeline

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

QUARANTINED: Final = 1
SUSPECT: Final = 2
SUPERSEDED: Final = 4
"""Bits of `flags`."""

_MARKS: Final = {mark: number for number, mark in enumerate(Mark)}
_OF_MARK: Final = ("lifecycle", "verdict", "assurance", "validation_state")
_RATE_BITS: Final = 10  # that say something: a thousandth


@router.get("/runs/{run}/timeline.json")
def timeline_route(visit: VisitDep, run: Annotated[str, Path(max_length=MAX_LABEL_CHARS)]) -> Response:
    """Return the newest checkpoints of a run, oldest first, and its starts."""
    timeline = read_timeline(visit.services, project_id=visit.project_id, name=run)
    return Response(orjson.dumps(timeline_json(timeline)), media_type="application/json")


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline as columns.

    `id`, `step` and `at` (seconds since 1970) are the first value, then differences: of saves that come
    regularly they compress to almost nothing. `lag_s` is from the save to its first verdict, `bytes_per_s`
    that of reading for the verdict in force; null: not known.
    """
    columns = _columns(timeline.checkpoints)
    kinds = zip(*(columns[name] for name in _OF_MARK), strict=True)
    holds = zip(columns["is_quarantined"], columns["is_suspect"], columns["lifecycle"], strict=True)
    lags = zip(columns["first_verdict_s"], columns["created_s"], strict=True)
    reads = zip(columns["bytes_read"], columns["seconds_reading"], strict=True)
    return {
        "now": round(timeline.now.timestamp()),
        "is_cut": timeline.is_cut,
        "marks": [{"name": mark.value, "text": mark.text} for mark in Mark],
        "target": _place(columns["id"], timeline.target_id),
        "id": _differences(columns["id"]),
        "step": _differences(columns["step"]),
        "at": _differences([round(moment) for moment in columns["created_s"]]),
        "branch": _differences(columns["branch"]),
        "mark": [_number(*kind) for kind in kinds],
        "flags": [_flags(*held) for held in holds],
        "lag_s": [_lag_s(*lag) for lag in lags],
        "bytes_per_s": [_rate(*read) for read in reads],
        "starts": [_start(start) for start in timeline.starts[::-1]],
    }


def _columns(rows: Sequence[Row[Any]]) -> dict[str, Sequence[Any]]:
    if not rows:
        return dict.fromkeys(TIMELINE_COLUMNS, ())
    return dict(zip(TIMELINE_COLUMNS, zip(*rows, strict=True), strict=True))


def _place(ids: Sequence[int], wanted: int | None) -> int | None:
    return ids.index(wanted) if wanted in ids else None


def _differences(values: Sequence[int]) -> list[int]:
    return [*values[:1], *(later - earlier for earlier, later in pairwise(values))]


@cache
def _number(*kind: str | None) -> int:
    return _MARKS[mark_of_kind(*kind)]


def _flags(is_quarantined: bool, is_suspect: bool, lifecycle: str) -> int:  # noqa: FBT001 - columns
    bits = QUARANTINED if is_quarantined else 0
    bits |= SUSPECT if is_suspect else 0
    return bits | (SUPERSEDED if lifecycle == Lifecycle.SUPERSEDED else 0)


def _lag_s(first_verdict_s: float | None, created_s: float) -> int | None:
    # A writer's clock may run ahead: no lag is below nothing.
    return None if first_verdict_s is None else max(0, round(first_verdict_s - created_s))


def _rate(bytes_read: int | None, seconds: float | None) -> int | None:
    if not seconds or not bytes_read:
        return None
    value = int(bytes_read / seconds)
    noise = max(0, value.bit_length() - _RATE_BITS)
    return value >> noise << noise


def _start(start: Start) -> dict[str, Any]:
    return {
        "at": round(start.started_at.timestamp()),
        "step": start.step,
        "branch": start.branch,
        "outcome": start.outcome.value,
        "attempt": start.attempt,
    }
