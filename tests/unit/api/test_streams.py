"""Server-sent events: in order, none lost, none of another project, and no end that hangs."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, select

from ckptguard.errors import TooManyRequestsError
from ckptguard.model.service import EventKind, Scope
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.stopping import Stopping
from ckptguard_api.domain.subject import Subject
from ckptguard_api.live.frames import Frame
from ckptguard_api.live.hub import EventHub, Listener
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.projects import find_project
from ckptguard_api.tables import runs, tokens
from ckptguard_api.use_cases.tokens import revoke_token
from tests.served_app import ServedApp

_DEADLINE_S = 60.0
Event = dict[str, str]


class Reader:
    """One stream, read in a thread, so that a test can wait for what it says."""

    def __init__(self, client: httpx.Client, path: str, headers: dict[str, str] | None = None) -> None:
        self.events: list[Event] = []
        self.status: int | None = None
        self.is_ended = False
        self.is_cut = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(client, path, headers or {}), daemon=True)
        self._thread.start()
        self.wait_for(lambda: self.status is not None)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when it holds; it is looked at after each event."""
        with self._changed:
            assert self._changed.wait_for(condition, _DEADLINE_S), (self.status, self.events, self.is_ended)

    def _read(self, client: httpx.Client, path: str, headers: dict[str, str]) -> None:
        try:
            with client.stream("GET", path, headers=headers) as answer:
                self._set(status=answer.status_code)
                for event in _parsed(answer.iter_lines()):
                    self._set(event=event)
        except httpx.HTTPError:
            self.is_cut = True
        self._set(is_ended=True)

    def _set(
        self, *, status: int | None = None, event: Event | None = None, is_ended: bool | None = None
    ) -> None:
        with self._changed:
            self.status = status or self.status
            self.is_ended = is_ended or self.is_ended
            self.events += [event] if event else []
            self._changed.notify_all()


def _parsed(lines: Iterator[str]) -> Iterator[Event]:
    fields: Event = {}
    for line in lines:
        if not line:
            if fields:
                yield fields
            fields = {}
            continue
        name, _, value = line.partition(":")
        fields[name or "comment"] = value.removeprefix(" ")


def _add_run(served: ServedApp, name: str, project: str = "default") -> Subject:
    with served.services.database.write() as tx:
        row = find_project(tx, project)
        assert row is not None
        values = {
            "project_id": row.id,
            "name": name,
            "revision": 0,
            "min_assurance": "loaded",
            "numerics": "report",
            "required_fqns": [],
            "min_steps": 20,
            "branch": 0,
            "created_at": tx.now,
        }
        run_id = tx.execute(insert(runs).values(values).returning(runs.c.id)).scalar_one()
    return Subject(project_id=row.id, run_id=run_id)


def _tell(served: ServedApp, about: Subject, **data: Any) -> int:  # noqa: ANN401 - JSON
    with served.services.database.write() as tx:
        event = record(tx, EventKind.RUN_CHANGED, actor=SERVICE, about=about, data=data)
    return event.id


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def _wait_until_nobody_listens(served: ServedApp) -> None:
    _wait_until(lambda: served.services.events.num_listeners == 0)


def _ids(reader: Reader) -> list[int]:
    return [int(event["id"]) for event in reader.events if "id" in event]


def test_a_stream_says_what_happens_in_order_and_of_its_run_alone(served: ServedApp) -> None:
    one, two = _add_run(served, "one"), _add_run(served, "two")
    _tell(served, one, before=True)
    reader = Reader(served.client(Scope.READ), "/v1/runs/one/events")
    ids = [_tell(served, subject, number=number) for number in range(20) for subject in (one, two)]
    reader.wait_for(lambda: len(_ids(reader)) >= 20)
    assert _ids(reader) == ids[::2]
    event = next(event for event in reader.events if "id" in event)
    assert event["event"] == "run.changed"
    data = json.loads(event["data"])
    assert (data["id"], data["kind"], data["run"], data["data"]) == (
        ids[0],
        "run.changed",
        "one",
        {"number": 0},
    )
    assert data["at"].endswith("Z")


def test_a_reader_that_comes_again_misses_nothing_and_sees_nothing_twice(served: ServedApp) -> None:
    run = _add_run(served, "r")
    ids = [_tell(served, run, number=number) for number in range(5)]
    reader = Reader(served.client(), "/v1/runs/r/events", {"Last-Event-ID": str(ids[1])})
    ids += [_tell(served, run, number=number) for number in range(5, 10)]
    reader.wait_for(lambda: len(_ids(reader)) >= 8)
    assert _ids(reader) == ids[2:]


def test_the_stream_of_a_project_holds_nothing_of_another(served: ServedApp) -> None:
    own, foreign = _add_run(served, "r"), _add_run(served, "r", "other")
    reader = Reader(served.client(), "/v1/events/stream")
    _tell(served, foreign)
    last = _tell(served, own)
    reader.wait_for(lambda: last in _ids(reader))
    assert _ids(reader) == [last]


def test_a_name_cannot_begin_another_event(served: ServedApp) -> None:
    run = _add_run(served, "r")
    reader = Reader(served.client(), "/v1/runs/r/events")
    last = _tell(served, run, name="x\n\nid: 99\ndata: forged\r\r\u2028")
    reader.wait_for(lambda: last in _ids(reader))
    assert _ids(reader) == [last]
    told = next(event for event in reader.events if "id" in event)
    assert json.loads(told["data"])["data"]["name"].startswith("x\n\nid: 99")


def test_an_unknown_run_and_a_foreign_one_are_404(door: ServedApp) -> None:
    with contextlib.suppress(AssertionError):
        _add_run(door, "foreign", "other")
    for name in ("nothing", "foreign"):
        assert door.client().get(f"/v1/runs/{name}/events").status_code == 404
    assert door.client().get("/v1/events/stream", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_stream_ends_when_its_token_is_revoked(served: ServedApp) -> None:
    reader = Reader(served.client(Scope.READ), "/v1/events/stream")
    with served.services.database.read() as tx:
        newest = tx.execute(select(tokens.c.id).order_by(tokens.c.id.desc()).limit(1)).scalar_one()
    revoke_token(served.services, newest, by=SERVICE, own_id=None)
    reader.wait_for(lambda: reader.is_ended)
    _wait_until_nobody_listens(served)


def test_a_stream_ends_when_its_token_does(door: ServedApp) -> None:
    headers = {"Authorization": f"Bearer {door.token(Scope.READ, expires_in_s=1.5)}"}
    with httpx.Client(base_url=door.url, headers=headers, trust_env=False) as client:
        reader = Reader(client, "/v1/events/stream")
        reader.wait_for(lambda: reader.is_ended)


def test_a_stream_that_nobody_reads_any_more_is_left(door: ServedApp) -> None:
    with contextlib.closing(door.client()) as client, client.stream("GET", "/v1/events/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        lines = answer.iter_lines()
        assert next(lines) == "retry: 2000"
        assert door.services.events.num_listeners == 1
    _wait_until_nobody_listens(door)


def test_many_streams_hold_no_connection_of_the_database(served: ServedApp) -> None:
    run = _add_run(served, "r")
    client = served.client()
    readers = [Reader(client, "/v1/runs/r/events") for _ in range(30)]
    assert served.services.events.num_listeners == 30
    last = _tell(served, run)
    for reader in readers:
        reader.wait_for(lambda reader=reader: last in _ids(reader))  # type: ignore[misc]
    pool: Any = served.services.database.engine.pool
    _wait_until(lambda: pool.checkedout() <= 2)  # the hub's and the revisions', once the telling is over
    assert served.services.events.num_listeners == 30


def test_streams_end_at_once_when_the_service_stops(served: ServedApp) -> None:
    readers = [Reader(served.client(), "/v1/events/stream") for _ in range(3)]
    served.stop()
    for reader in readers:
        reader.wait_for(lambda reader=reader: reader.is_ended)  # type: ignore[misc]
    assert not any(reader.is_cut for reader in readers), "the server gave up waiting for them"


def _frame(number: int) -> Frame:
    return Frame(event_id=number, project_id=1, run_id=None, body=b"")


def test_a_listener_that_does_not_keep_up_is_cut_off() -> None:
    listener = Listener(project_id=1, run_id=None, from_id=0, max_frames=3)
    for number in range(3):
        listener.tell(_frame(number))
    assert not listener.is_cut_off
    listener.tell(_frame(3))
    assert listener.is_cut_off


def test_there_are_no_more_streams_than_may_be(door: ServedApp) -> None:
    async def listen() -> None:
        hub = EventHub(door.services.database, Stopping(), max_listeners=2)
        first = [await hub.listen(project_id=1, run_id=None) for _ in range(2)]
        with pytest.raises(TooManyRequestsError):
            await hub.listen(project_id=1, run_id=None)
        hub.leave(first[0])
        first.append(await hub.listen(project_id=1, run_id=None))
        for listener in first:
            hub.leave(listener)

    asyncio.run(listen())
