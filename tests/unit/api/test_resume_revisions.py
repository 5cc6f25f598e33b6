"""Revisions: shared by requests, and exact."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from sqlalchemy import event, insert, text

from ckptguard.errors import ServiceUnavailableError
from ckptguard_api.database import Database
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.revisions.reader import RevisionReader
from ckptguard_api.revisions.values import Revisions, RunKey, RunRevision
from ckptguard_api.tables import revisions
from tests.service_rows import add_project, add_run


def read_with(database: Database, ask: Callable[[RevisionReader], Awaitable[None]]) -> None:
    """Run `ask` on a loop of its own, and close the reader."""

    async def run() -> None:
        reader = RevisionReader(database, timeout_s=10.0)
        try:
            await ask(reader)
        finally:
            await reader.close()

    asyncio.run(run())


def make_runs(database: Database) -> dict[str, int]:
    """Add two runs of one project; return their ids."""
    with database.write() as tx:
        project_id = add_project(tx)
        tx.execute(insert(revisions).values(name="tokens", value=5))
        return {name: add_run(tx, project_id, name, revision=1) for name in ("a", "b")}


@contextmanager
def other_process(database: Database) -> Iterator[Database]:
    """Yield the same database as another process has it."""
    other = Database(database.engine.url.render_as_string(hide_password=False))
    yield other
    other.close()


def test_all_asked_for_and_all_named_ones_are_read_together(database: Database) -> None:
    run_ids = make_runs(database)

    async def ask(reader: RevisionReader) -> None:
        found = await reader.read([(1, "a"), (1, "none"), (2, "a")])
        assert found.runs == {(1, "a"): RunRevision(run_id=run_ids["a"], revision=1)}
        assert found.named == {"tokens": 5}

    read_with(database, ask)


def test_read_shows_what_any_process_committed_before_it(database: Database) -> None:
    run_ids = make_runs(database)

    async def ask(reader: RevisionReader) -> None:
        with other_process(database) as other:
            for expected in range(2, 20):
                with other.write() as tx:
                    touch_run(tx, run_ids["a"])
                found = await reader.read([(1, "a")])
                assert found.runs[1, "a"].revision == expected

    read_with(database, ask)


def test_read_under_way_never_answers_one_that_came_later(database: Database) -> None:
    run_ids = make_runs(database)

    async def ask(reader: RevisionReader) -> None:
        early: list[asyncio.Task[Revisions]] = []
        for expected in range(2, 20):
            early.append(asyncio.create_task(reader.read([(1, "b")])))
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # its query is under way now
            with database.write() as tx:
                touch_run(tx, run_ids["a"])
            assert (await reader.read([(1, "a")])).runs[1, "a"].revision == expected
        await asyncio.gather(*early)

    read_with(database, ask)


def test_requests_that_come_together_share_queries(database: Database) -> None:
    make_runs(database)
    asked: list[Sequence[RunKey]] = []

    async def ask(reader: RevisionReader) -> None:
        source = reader.source

        class Counted:
            async def ask(self, keys: Sequence[RunKey]) -> Revisions:
                asked.append(keys)
                return await source.ask(keys)

            async def close(self) -> None:
                await source.close()

        reader.source = Counted()
        await asyncio.gather(*(reader.read([(1, "ab"[number % 2])]) for number in range(200)))

    read_with(database, ask)
    assert len(asked) <= 2


def test_request_that_gives_up_takes_nobody_with_it(database: Database) -> None:
    make_runs(database)

    async def ask(reader: RevisionReader) -> None:
        impatient, patient = (asyncio.create_task(reader.read([(1, "a")])) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await patient).runs[1, "a"].revision == 1
        assert impatient.cancelled() or impatient.cancelling()

    read_with(database, ask)


def test_read_waits_for_no_connection_that_others_hold(database: Database) -> None:
    url = database.engine.url.render_as_string(hide_password=False)
    small = Database(url, pool_size=1)

    async def story() -> Revisions:
        reader = RevisionReader(small, timeout_s=5.0)
        with small.read():
            found = await reader.read()
        await reader.close()
        return found

    assert asyncio.run(story()).runs == {}
    small.close()


def test_connection_that_broke_is_replaced(database: Database) -> None:
    make_runs(database)

    async def ask(reader: RevisionReader) -> None:
        await reader.read()
        if database.is_postgresql:
            await asyncio.to_thread(_end_all_other_backends, database)
        else:
            reader.source._driver.close()  # type: ignore[attr-defined]
        assert (await reader.read([(1, "a")])).runs[1, "a"].revision == 1

    read_with(database, ask)


def _end_all_other_backends(database: Database) -> None:
    with database.read() as tx:
        tx.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )


def test_query_that_takes_too_long_is_given_up_and_the_next_one_is_answered(database: Database) -> None:
    make_runs(database)

    async def story() -> None:
        reader = RevisionReader(database, timeout_s=0.5)
        await reader.read()
        with _runs_locked(database), pytest.raises(ServiceUnavailableError, match="no answer within"):
            await reader.read([(1, "a")])
        assert (await reader.read([(1, "a")])).runs[1, "a"].revision == 1
        await reader.close()

    if database.is_postgresql:  # a reader of SQLite's write-ahead log waits for nobody
        asyncio.run(story())


@contextmanager
def _runs_locked(database: Database) -> Iterator[None]:
    with database.write() as tx:
        tx.execute(text("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"))
        yield


def test_ten_thousand_runs_with_any_name_are_asked_about_at_once(database: Database) -> None:
    names = ['"{,}\\', "a'b", "é\u4e2d", "NULL", " "]
    with database.write() as tx:
        project_id = add_project(tx)
        run_ids = {name: add_run(tx, project_id, name, revision=3) for name in names}
    strange = ["nul\0", "half \ud800", *(f"none-{'x' * 200}-{number}" for number in range(10_000))]

    async def ask(reader: RevisionReader) -> None:
        found = await reader.read([(1, name) for name in [*names, *strange]])
        expected = {(1, name): RunRevision(run_id=run_id, revision=3) for name, run_id in run_ids.items()}
        assert found.runs == expected
        assert len(found.asked) == len(names) + len(strange)

    read_with(database, ask)


def test_database_that_fails_is_told_to_all_and_then_forgotten(database: Database) -> None:
    make_runs(database)

    def refuse(*_: object) -> None:
        msg = "no more connections"
        raise ServiceUnavailableError(msg)

    async def ask(reader: RevisionReader) -> None:
        event.listen(database.engine.pool, "checkout", refuse)
        outcomes = await asyncio.gather(*(reader.read() for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ServiceUnavailableError] * 3
        event.remove(database.engine.pool, "checkout", refuse)
        assert (await reader.read()).named == {"tokens": 5}

    read_with(database, ask)


def test_fault_of_the_query_reaches_the_caller(database: Database) -> None:
    async def ask(reader: RevisionReader) -> None:
        async def faulty(_: object) -> Revisions:
            raise ZeroDivisionError

        reader.source.ask = faulty  # type: ignore[method-assign,assignment]
        with pytest.raises(ZeroDivisionError):
            await reader.read()

    read_with(database, ask)
