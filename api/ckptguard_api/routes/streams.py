"""Server-sent events: the audit as it grows, and progress."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from ckptguard_api.doorkeeper import PROJECT_HEADER
from ckptguard_api.live.stream import EventStream
from ckptguard_api.routes.dependencies import Caller, ReaderDep, ServicesDep
from ckptguard_api.services import Services
from ckptguard_api.use_cases.access import bearer_token
from ckptguard_api.use_cases.live import run_to_hear_of

router = APIRouter(prefix="/v1", tags=["events"])

_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Events with `id`, `event` (the kind) and `data` (JSON); `progress` without `id`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**63 - 1)]
RunName = Annotated[str, Path(min_length=1, max_length=256)]


@router.get("/runs/{run}/events", response_class=Response, responses=_ANSWER)
async def stream_run_events(
    run: RunName,
    caller: ReaderDep,
    services: ServicesDep,
    request: Request,
    last_event_id: LastEventId = None,
) -> EventStream:
    """Stream what happens to a run; with `Last-Event-ID` from there on."""
    run_id = await run_in_threadpool(run_to_hear_of, services, caller.project_id, run)
    return await _stream(request, services, caller, run_id=run_id, after_id=last_event_id)


@router.get("/events/stream", response_class=Response, responses=_ANSWER)
async def stream_events(
    caller: ReaderDep, services: ServicesDep, request: Request, last_event_id: LastEventId = None
) -> EventStream:
    """Stream what happens in a project; with `Last-Event-ID` from there on."""
    return await _stream(request, services, caller, run_id=None, after_id=last_event_id)


async def _stream(
    request: Request, services: Services, caller: Caller, *, run_id: int | None, after_id: int | None
) -> EventStream:
    listener = await services.events.listen(project_id=caller.project_id, run_id=run_id)
    return EventStream(
        services,
        listener,
        access=request.state.access,
        token=bearer_token(request.headers.get("authorization")),
        project_name=request.headers.get(PROJECT_HEADER),
        after_id=after_id,
    )
