"""What goes on, for a page that is looked at: the events of a run, or of a project, as they happen."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.concurrency import run_in_threadpool

from ckptguard_api.live.stream import EventStream
from ckptguard_api.pages.paths import IN_PROJECT
from ckptguard_api.pages.visit import Visit, VisitDep
from ckptguard_api.use_cases.live import newest_event, run_to_hear_of

router = APIRouter(prefix=IN_PROJECT, include_in_schema=False)

_MAX_ID = 2**63 - 1

RunName = Annotated[str, Path(min_length=1, max_length=256)]
After = Annotated[int | None, Query(ge=0, le=_MAX_ID)]
LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=_MAX_ID)]


@router.get("/stream", response_model=None)
async def project_stream_route(
    visit: VisitDep, after: After = None, last_event_id: LastEventId = None
) -> EventStream:
    """Stream what happens in the project."""
    return await _stream(visit, run_id=None, after_id=after if last_event_id is None else last_event_id)


@router.get("/runs/{run}/stream", response_model=None)
async def run_stream_route(
    run: RunName, visit: VisitDep, after: After = None, last_event_id: LastEventId = None
) -> EventStream:
    """Stream what happens to a run."""
    run_id = await run_in_threadpool(run_to_hear_of, visit.services, visit.project_id, run)
    return await _stream(visit, run_id=run_id, after_id=after if last_event_id is None else last_event_id)


def live_position(visit: Visit) -> int:
    """Return where the stream of a page must begin; read before all that the page shows."""
    return newest_event(visit.services)


async def _stream(visit: Visit, *, run_id: int | None, after_id: int | None) -> EventStream:
    # A page says after which event it was read (`after`); whoever comes again, the last that it heard of.
    listener = await visit.services.events.listen(project_id=visit.project_id, run_id=run_id)
    return EventStream(
        visit.services,
        listener,
        access=visit.access,
        token=visit.token,
        project_name=visit.project,
        after_id=after_id,
    )
