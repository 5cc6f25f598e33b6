"""The request of an event stream, and its refusals: what both clients share."""

from typing import Any, NoReturn

import httpx

from ckptguard.client.address import Address
from ckptguard.client.call import Call, segment
from ckptguard.client.exchange import STREAM_SILENCE_S, Prepared, headers_of, prepare
from ckptguard.client.problems import error_of_answer
from ckptguard.client.sse import Thread


def stream_request(address: Address, run: str | None, thread: Thread) -> tuple[Prepared, httpx.Timeout]:
    """Return the request that opens a stream behind the last event seen, and its bounds."""
    path = "/v1/events/stream" if run is None else f"/v1/runs/{segment(run)}/events"
    call: Call[Any] = Call(method="GET", path=path, read=lambda value: value)
    asked = prepare(call, address, hold_s=0.0)
    headers = {**asked.headers, "Accept": "text/event-stream"}
    if thread.last_id is not None:
        headers["Last-Event-ID"] = thread.last_id
    timeout = httpx.Timeout(STREAM_SILENCE_S, connect=5.0)
    return Prepared(method="GET", url=asked.url, headers=headers, content=None), timeout


def raise_for_stream(response: httpx.Response, body: bytes) -> NoReturn:
    """Raise what a refused stream means."""
    raise error_of_answer(response.status_code, headers_of(response), body)
