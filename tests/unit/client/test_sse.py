"""Event streams: the parser takes bytes in any pieces; a stream connects again and misses nothing."""

import asyncio
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptguard.client import Address, AsyncClient, Client, sse
from ckptguard.client.sse import EventParser, ServerEvent
from ckptguard.errors import NotFoundError, ServiceError, ServiceUnavailableError
from tests.scripted_service import TOKEN, Reply, ScriptedService, scripted_service

STREAM = (
    b': hello\r\n\r\nretry: 5\r\n\r\nid: 4\nevent: run.created\ndata: {"a":\ndata: 1}\n\ndata: 2\r\rid: 9\n\n'
)
EVENTS = [ServerEvent(kind="run.created", id="4", data={"a": 1}), ServerEvent(kind="message", data=2)]


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12).map(sorted))
def test_any_pieces_give_the_same_events(cuts: list[int]) -> None:
    parser = EventParser()
    pieces = [STREAM[start:end] for start, end in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


@pytest.mark.parametrize("chunk", [b"x" * 5_000_000, b"data: 1\n" * 600_000, b"data: {\n\n"])
def test_a_stream_that_is_none_is_an_error(chunk: bytes) -> None:
    with pytest.raises(ServiceError):
        list(EventParser().feed(chunk))


def replies() -> list[Reply]:
    return [
        Reply(
            raw=b"id: 1\nevent: a\ndata: {}\n\nevent: progress\ndata: {}\n\n",
            content_type="text/event-stream",
        ),
        Reply(is_cut=True),
        Reply(raw=b"id: 2\nevent: b\ndata: {}\n\n", content_type="text/event-stream"),
    ]


def test_a_stream_goes_on_behind_the_last_event(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "_FIRST_WAIT_S", 0.01)
    service.on("GET /v1/runs/r/events", *replies())
    with Client(Address.of(service.url, TOKEN)) as client:
        kinds = [event.kind for event in islice(client.stream(run="r"), 3)]
    assert kinds == ["a", "progress", "b"]
    assert [asked.headers.get("last-event-id") for asked in service.asked] == [None, "1", "1"]


def test_an_asynchronous_stream_does_the_same(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "_FIRST_WAIT_S", 0.01)
    service.on("GET /v1/events/stream", *replies())

    async def kinds() -> list[str]:
        found: list[str] = []
        async with AsyncClient(Address.of(service.url, TOKEN)) as client:
            stream = client.stream()
            while len(found) < 3:
                found.append((await anext(stream)).kind)
            await stream.aclose()
        return found

    assert asyncio.run(kinds()) == ["a", "progress", "b"]
    assert [asked.headers.get("last-event-id") for asked in service.asked] == [None, "1", "1"]


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "_FIRST_WAIT_S", 0.01)
    with scripted_service() as gone:
        url = gone.url
    with Client(Address.of(url, TOKEN)) as client, pytest.raises(ServiceUnavailableError):
        next(client.stream(patience_s=0.1))


def test_a_refused_stream_is_an_error_at_once(service: ScriptedService) -> None:
    with Client(Address.of(service.url, TOKEN)) as client, pytest.raises(NotFoundError):
        next(client.stream(run="nobody"))
    assert len(service.asked) == 1
