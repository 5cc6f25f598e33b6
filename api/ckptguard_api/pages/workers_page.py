"""Who validates: when each was heard of, what it can do, and what it does."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Row
from starlette.responses import Response

from ckptguard_api.pages.live_stream import live_position
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import VisitDep
from ckptguard_api.use_cases.history import MAX_WORKERS, Workers, show_workers

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)


class WorkerState(StrEnum):
    """What a worker is at."""

    WORKING = "working"
    IDLE = "idle"
    DRAINING = "draining"  # finishes what it holds, and takes nothing more
    SILENT = "silent"
    GONE = "gone"  # said that it was going, and was not heard of since


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWorker:
    """One worker with all that it does.

    Args:
        row: Of `workers`.
        state: What it is at.
        doing: Its leases; of another project's nothing but the end is told.
    """

    row: Row[Any]
    state: WorkerState
    doing: Sequence[Row[Any]]


@router.get("/workers")
def workers_route(visit: VisitDep) -> Response:
    """List the workers of this project and of all projects, those heard of last first."""
    position = live_position(visit)
    known = show_workers(visit.services, project_id=visit.project_id)
    heard_within_s = visit.services.settings.worker_heard_within_s
    shown = _shown(known, heard_within_s=heard_within_s)
    return visit.page(
        "workers_part.html" if visit.is_fragment else "workers.html",
        section="workers",
        workers=shown,
        progress=known.progress,
        now=known.now,
        counts={state: sum(one.state is state for one in shown) for state in WorkerState},
        heard_within_s=heard_within_s,
        is_cut=len(known.rows) >= MAX_WORKERS,
        project_id=visit.project_id,
        position=position,
        own_url=str(visit.request.base_url).rstrip("/"),
    )


def _shown(known: Workers, *, heard_within_s: float) -> list[ShownWorker]:
    found = []
    for _, grouped in groupby(known.rows, key=lambda row: row.id):
        rows = list(grouped)
        doing = [row for row in rows if row.attempt_id is not None]
        is_silent = (known.now - rows[0].seen_at).total_seconds() > heard_within_s
        state = _state(rows[0], is_silent=is_silent, is_working=bool(doing))
        found.append(ShownWorker(row=rows[0], state=state, doing=doing))
    return found


def _state(row: Row[Any], *, is_silent: bool, is_working: bool) -> WorkerState:
    if is_silent:
        return WorkerState.GONE if row.is_draining else WorkerState.SILENT
    if row.is_draining:
        return WorkerState.DRAINING
    return WorkerState.WORKING if is_working else WorkerState.IDLE
