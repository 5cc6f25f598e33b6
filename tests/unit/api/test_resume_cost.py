"""What a resume target may cost: one query of revisions, no line in the log, no count without an end."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
import structlog
from structlog.testing import CapturingLogger

from ckptguard.model.service import Lifecycle, Scope, ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.answers.targets import ResumeTargets, TargetKey
from ckptguard_api.database import Database
from ckptguard_api.domain.resume import Question
from ckptguard_api.one_thread import OneThread
from ckptguard_api.repositories import resume
from ckptguard_api.revisions.reader import RevisionReader
from ckptguard_api.revisions.sqlite import SqliteRevisions
from ckptguard_api.revisions.values import Revisions, RunKey
from tests.databases import fresh_database
from tests.served_app import ServedApp
from tests.service_rows import add_checkpoint, add_project, add_run, add_store, add_validation

PATH = "/v1/runs/r/resume-target"


@pytest.fixture
def run_id(served: ServedApp) -> int:
    """Return run `r` of the project `default`: a store, and no checkpoint."""
    with served.services.database.write() as tx:
        add_store(tx, 1)
        return add_run(tx, 1, "r")


@pytest.fixture
def reads(served: ServedApp, monkeypatch: pytest.MonkeyPatch) -> list[list[RunKey]]:
    """Return what was asked of the database's revisions, read by read."""
    seen: list[list[RunKey]] = []
    source = served.services.revisions.source
    ask = source.ask

    async def counted(keys: Sequence[RunKey]) -> Revisions:
        seen.append(list(keys))
        return await ask(keys)

    monkeypatch.setattr(source, "ask", counted)
    return seen


def test_one_query_tells_who_asks_and_what_is_new(
    served: ServedApp, run_id: int, reads: list[list[RunKey]]
) -> None:
    client = served.client(Scope.READ)
    first = client.get(PATH).json()  # the token is not known yet, nor what it may ask about
    reads.clear()
    assert client.get(PATH).json() == first
    assert reads == [[(1, "r")]]
    assert run_id


def test_a_run_of_another_project_is_not_answered_from_what_was_read_for_the_first(
    served: ServedApp, run_id: int, reads: list[list[RunKey]]
) -> None:
    client = served.client()
    assert client.get(PATH).json()["state"] == "none_exist"
    other = client.get(PATH, headers={"Ckptguard-Project": "other"}).json()
    assert other["state"] == "unknown_run"
    assert client.get(PATH).json()["state"] == "none_exist"
    assert {key for keys in reads for key in keys} == {(1, "r"), (2, "r")}
    assert run_id


def test_other_methods_are_refused_as_everywhere(served: ServedApp) -> None:
    for method in ("HEAD", "POST", "DELETE"):
        answer = served.client().request(method, PATH)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET"), method


def test_metrics_count_it_under_its_route(served: ServedApp, run_id: int) -> None:
    client = served.client(Scope.READ)
    client.get(PATH)
    text = client.get("/metrics").text
    assert 'route="/v1/runs/{run}/resume-target",status="200"' in text
    assert run_id


@pytest.mark.parametrize(("path", "has_line"), [(PATH, False), (f"{PATH}?step=x", True), ("/v1/runs", True)])
def test_only_what_is_as_it_should_be_has_no_line_in_the_log(
    served: ServedApp, run_id: int, path: str, *, has_line: bool
) -> None:
    captured = CapturingLogger()
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=lambda *_: captured,
    )
    try:
        served.client(Scope.READ).get(path)
    finally:
        structlog.reset_defaults()
    lines = [json.loads(call.args[0]) for call in captured.calls]
    assert [line["path"] for line in lines if line["event"] == "request"] == (
        [path.partition("?")[0]] if has_line else []
    )
    assert run_id


def test_newer_ones_are_counted_to_an_end(
    served: ServedApp, run_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "MAX_COUNTED", 150)
    with served.services.database.write() as tx:
        for step in range(200):
            lifecycle = Lifecycle.SUPERSEDED if step % 4 == 0 else Lifecycle.REGISTERED
            add_checkpoint(tx, run_id, 1, step=step, lifecycle=lifecycle, verdict=Verdict.INVALID)
    answer = served.client(Scope.READ).get(PATH).json()
    assert len(answer["passed_over"]) == 100
    assert answer["passed_over"][0]["step"] == 199
    assert answer["passed_over_total"] + answer["superseded"] == 150
    assert answer["superseded"] == 37


def test_progress_is_read_again_while_the_answer_is_given(tmp_path: Path) -> None:
    clock = FakeClock()

    async def story(database: Database) -> None:
        revisions = RevisionReader(database)
        targets = ResumeTargets(database, revisions, clock=clock)
        key = TargetKey(run=(1, "r"), question=Question())
        first = await targets.answer(key)
        clock.advance(4.0)
        assert await targets.answer(key) is first
        clock.advance(2.0)
        assert await targets.answer(key) is first, "nobody waits for progress"
        async with asyncio.timeout(20.0):
            while (second := await targets.answer(key)) is first:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0)
        assert second.made_at_s == 6.0
        clock.advance(11.0)
        assert (await targets.answer(key)).made_at_s == 17.0, "what is too old is not given"
        targets.close()
        await revisions.close()

    with fresh_database("sqlite", folder=tmp_path) as database:
        with database.write() as tx:
            store_id = add_store(tx, add_project(tx))
            newest = add_checkpoint(tx, add_run(tx, 1, "r"), store_id, step=1)
            add_validation(tx, newest, state=ValidationState.RUNNING)
        asyncio.run(story(database))


def test_a_locked_connection_is_left_to_the_thread(tmp_path: Path) -> None:
    async def ask(source: SqliteRevisions) -> Revisions:
        await source.ask([])
        with source._lock:
            assert source._read_at_once([]) is None
        found = await source.ask([(1, "r")])
        await source.close()
        return found

    with fresh_database("sqlite", folder=tmp_path) as database:
        assert asyncio.run(ask(SqliteRevisions(database))).asked == {(1, "r")}


def test_a_thread_calls_in_order_and_tells_faults_to_who_asked() -> None:
    called: list[object] = []

    def note(value: int) -> int:
        called.append(value)
        if value == 1:
            raise ZeroDivisionError
        return value

    async def ask() -> list[object]:
        thread: OneThread[int] = OneThread(name="test")
        asked = (thread.call(lambda value=value: note(value)) for value in range(3))  # type: ignore[misc]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        await asyncio.to_thread(thread.close, lambda: called.append("last"))
        return list(outcomes)

    first, second, third = asyncio.run(ask())
    assert (first, type(second), third) == (0, ZeroDivisionError, 2)
    assert called == [0, 1, 2, "last"]


def test_a_call_that_was_given_up_harms_no_later_one() -> None:
    may_end = threading.Event()

    async def ask() -> int:
        thread: OneThread[int] = OneThread(name="test")
        slow = asyncio.create_task(thread.call(lambda: int(may_end.wait(10))))
        await asyncio.sleep(0)
        slow.cancel()
        may_end.set()
        answer = await thread.call(lambda: 7)
        await asyncio.to_thread(thread.close, lambda: None)
        return answer

    assert asyncio.run(ask()) == 7


def test_an_answer_that_is_still_the_same_is_not_sent_again(served: ServedApp, run_id: int) -> None:
    client = served.client(Scope.READ)
    first = client.get(PATH)
    again = client.get(PATH, headers={"If-None-Match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (httpx.codes.NOT_MODIFIED, b"")
    assert again.headers["cache-control"] == first.headers["cache-control"] == "private, no-cache"
    assert first.headers["content-type"] == "application/json"
    assert run_id
