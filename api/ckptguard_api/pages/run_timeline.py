"""What `run.js` draws of a run: its newest checkpoints, as columns, as short as they can be said."""

from collections.abc import Mapping, Sequence
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
from ckptguard_api.pages.looked_again import look
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
_SUPERSEDED: Final = Lifecycle.SUPERSEDED.value
_FAST: Final = 1 << 24
_NOISE_BITS: Final = 14  # of a rate that is fast: a thousandth, which would only take room

_Columns = Mapping[str, Sequence[Any]]


@router.get("/runs/{run}/timeline.json")
def timeline_route(visit: VisitDep, run: Annotated[str, Path(max_length=MAX_LABEL_CHARS)]) -> Response:
    """Return the newest checkpoints of a run, oldest first, and its starts."""
    seen = look(visit, run=run, has_ages=False)
    if seen.is_known:
        return seen.unchanged()
    timeline = read_timeline(visit.services, project_id=visit.project_id, name=run)
    return seen.named(Response(orjson.dumps(timeline_json(timeline)), media_type="application/json"))


def timeline_json(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline as columns.

    `id`, `step` and `at` (seconds since 1970) are the first value, then differences: of saves that come
    regularly they compress to almost nothing. `lag_s` is from the save to its first verdict, `bytes_per_s`
    that of reading for the verdict in force; null: not known.
    """
    columns = _columns(timeline.checkpoints)
    return {
        "now": round(timeline.now.timestamp()),
        "is_cut": timeline.is_cut,
        "marks": [{"name": mark.value, "text": mark.text} for mark in Mark],
        "target": _place(columns["id"], timeline.target_id),
        "id": _differences(columns["id"]),
        "step": _differences(columns["step"]),
        "at": _differences([round(moment) for moment in columns["created_s"]]),
        "branch": _differences(columns["branch"]),
        "mark": [_number(*kind) for kind in zip(*(columns[name] for name in _OF_MARK), strict=True)],
        "flags": _flags(columns),
        "lag_s": _lags_s(columns),
        "bytes_per_s": _rates(columns),
        "starts": [_start(start) for start in timeline.starts[::-1]],
    }


def _columns(rows: Sequence[Row[Any]]) -> _Columns:
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


# No call for each of ten thousand rows: the three below are a third of what this page costs Python.


def _flags(columns: _Columns) -> list[int]:
    facts = zip(columns["is_quarantined"], columns["is_suspect"], columns["lifecycle"], strict=True)
    return [
        (QUARANTINED if is_quarantined else 0)
        | (SUSPECT if is_suspect else 0)
        | (SUPERSEDED if lifecycle == _SUPERSEDED else 0)
        for is_quarantined, is_suspect, lifecycle in facts
    ]


def _lags_s(columns: _Columns) -> list[int | None]:
    moments = zip(columns["first_verdict_s"], columns["created_s"], strict=True)
    # A writer's clock may run ahead: no lag is below nothing.
    return [
        None if judged_s is None else round(judged_s - saved_s) if judged_s > saved_s else 0
        for judged_s, saved_s in moments
    ]


def _rates(columns: _Columns) -> list[int | None]:
    reads = zip(columns["bytes_read"], columns["seconds_reading"], strict=True)
    exact = [int(length / seconds) if length and seconds else None for length, seconds in reads]
    return [rate if rate is None or rate < _FAST else rate >> _NOISE_BITS << _NOISE_BITS for rate in exact]


def _start(start: Start) -> dict[str, Any]:
    return {
        "at": round(start.started_at.timestamp()),
        "step": start.step,
        "branch": start.branch,
        "outcome": start.outcome.value,
        "attempt": start.attempt,
    }
