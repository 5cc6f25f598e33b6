"""Launchers that wait: for what, until when, and at what cost."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy import QueuePool, event, select, update

from ckptguard.errors import TooManyRequestsError
from ckptguard.model.service import ValidationState
from ckptguard.model.verdict import Verdict
from ckptguard_api.answers import targets, waiting
from ckptguard_api.answers.resume import ResumeAnswers
from ckptguard_api.answers.targets import Prepared, TargetKey
from ckptguard_api.database import Database
from ckptguard_api.domain.resume import Question
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, validations, workers
from tests.service_rows import add_checkpoint, add_project, add_run, add_store, add_validation, add_worker

KEY = TargetKey(run=(1, "r"), question=Question())
LONG_S = 60.0


async def _stays() -> bool:
    return False


class Waited:
    """A run with a VALID step 100 and a newer one that is queued, and launchers that ask for it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.services = Services(database=database, settings=Settings())
        self.answers = ResumeAnswers(self.services)
        with database.write() as tx:
            store_id = add_store(tx, add_project(tx))
            self.run_id = add_run(tx, 1, "r", revision=1)
            add_checkpoint(tx, self.run_id, store_id, step=100, verdict=Verdict.VALID)
            self.newer_id = add_checkpoint(tx, self.run_id, store_id, step=200)
            self.validation_id = add_validation(tx, self.newer_id, state=ValidationState.QUEUED)
            add_worker(tx)

    def ask(
        self,
        *,
        wait_s: float = LONG_S,
        index: int | None = None,
        is_gone: Callable[[], Awaitable[bool]] = _stays,
    ) -> Awaitable[Prepared]:
        """Wait for the answer."""
        return self.answers.answer(KEY, wait_s=wait_s, index=index, is_gone=is_gone)

    def judge(self, database: Database | None = None) -> None:
        """Record the verdict of the newer one: VALID."""
        with (database or self.database).write() as tx:
            values = {"verdict": "VALID", "assurance": "loaded", "verdict_validation_id": self.validation_id}
            is_this = checkpoints.c.id == self.newer_id
            tx.execute(
                update(checkpoints)
                .where(is_this)
                .values(validation_state=None, validated_at=tx.now, **values)
            )
            tx.execute(update(validations).values(state="finished"))
            touch_run(tx, self.run_id)

    def change_workers(self, **values: object) -> None:
        """Change all workers; no revision tells of it."""
        with self.database.write() as tx:
            tx.execute(update(workers).values(values))


@pytest.fixture(autouse=True)
def _databases_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with other work is no reason to answer 503 here."""
    monkeypatch.setattr(targets, "READ_TIMEOUT_S", LONG_S)


@asynccontextmanager
async def waited_in(database: Database) -> AsyncIterator[Waited]:
    """Yield what tests wait with."""
    made = Waited(database)
    yield made
    made.answers.close()
    await made.services.revisions.close()


async def until(holds: Callable[[], bool]) -> None:
    """Return when it holds."""
    async with asyncio.timeout(LONG_S):
        while not holds():  # noqa: ASYNC110 - what it looks at tells nobody
            await asyncio.sleep(0.02)


async def until_waiting(waited: Waited, number: int) -> None:
    """Return when so many wait."""
    await until(lambda: waited.answers.num_waiting == number)


def target_step(prepared: Prepared) -> bool:
    """Say whether the newer one is the target."""
    return b'"target":{"id"' in prepared.body and b'"step":200' in prepared.body.split(b'"below"')[0]


@pytest.mark.parametrize("is_other_process", [False, True])
def test_waiting_launcher_gets_the_newer_one_when_its_verdict_comes(
    database: Database, *, is_other_process: bool
) -> None:
    async def story() -> None:
        async with waited_in(database) as waited:
            asking = asyncio.ensure_future(waited.ask())
            await until_waiting(waited, 1)
            url = database.engine.url.render_as_string(hide_password=False)
            other = Database(url) if is_other_process else None
            await asyncio.to_thread(waited.judge, other)
            assert target_step(await asyncio.wait_for(asking, LONG_S / 2))
            if other is not None:
                other.close()

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["silent", "draining", "other store", "shallow", "other project"])
def test_worker_that_cannot_do_it_is_not_waited_for(database: Database, kind: str) -> None:
    async def story() -> None:
        async with waited_in(database) as waited:
            with database.write() as tx:
                now, other = tx.now, add_project(tx, "other")
            changes: dict[str, dict[str, object]] = {
                "silent": {"seen_at": now - timedelta(seconds=61)},
                "draining": {"is_draining": True},
                "other store": {"capabilities": {"stores": ["elsewhere"]}},
                "shallow": {"capabilities": {"stores": ["demo"], "depths": ["structure"]}},
                "other project": {"project_id": other},
            }
            waited.change_workers(**changes[kind])
            assert not target_step(await asyncio.wait_for(waited.ask(), LONG_S / 2))

    asyncio.run(story())


def test_worker_of_every_store_is_waited_for(database: Database) -> None:
    async def story() -> None:
        async with waited_in(database) as waited:
            waited.change_workers(capabilities={"stores": ["*"]})
            asking = asyncio.ensure_future(waited.ask())
            await until_waiting(waited, 1)
            await asyncio.to_thread(waited.judge, None)
            assert target_step(await asyncio.wait_for(asking, LONG_S / 2))

    asyncio.run(story())


def test_wait_ends_when_the_last_able_worker_falls_silent(database: Database) -> None:
    async def story() -> None:
        async with waited_in(database) as waited:
            asking = asyncio.ensure_future(waited.ask())
            await until_waiting(waited, 1)
            await asyncio.to_thread(waited.change_workers, is_draining=True)
            assert not target_step(await asyncio.wait_for(asking, LONG_S / 2))

    asyncio.run(story())


def test_wait_ends_when_the_time_is_up_the_client_is_gone_or_the_server_stops(database: Database) -> None:
    async def gone() -> bool:
        return True

    async def story() -> None:
        async with waited_in(database) as waited:
            began = time.monotonic()
            await waited.ask(wait_s=0.3)
            assert 0.3 <= time.monotonic() - began < LONG_S
            await asyncio.wait_for(waited.ask(is_gone=gone), LONG_S / 2)
            asking = asyncio.ensure_future(waited.ask())
            await until_waiting(waited, 1)
            waited.services.stopping.set()
            await asyncio.wait_for(asking, LONG_S / 2)
            assert waited.answers.num_waiting == 0

    asyncio.run(story())


def test_index_is_waited_on_until_the_revision_is_another(database: Database) -> None:
    async def story() -> None:
        async with waited_in(database) as waited:
            await asyncio.wait_for(waited.ask(index=7), LONG_S / 2)
            asking = asyncio.ensure_future(waited.ask(index=1))
            await until_waiting(waited, 1)
            with database.write() as tx:
                touch_run(tx, waited.run_id)
            assert (await asyncio.wait_for(asking, LONG_S / 2)).index == 2

    asyncio.run(story())


def test_hundred_launchers_hold_no_connection_and_mark_once(database: Database) -> None:
    async def story() -> None:
        async with waited_in(database) as waited:
            writes: list[str] = []

            def seen(_connection: object, _cursor: object, statement: str, *_: object) -> None:
                if statement.startswith("UPDATE validations"):
                    writes.append(statement)

            event.listen(database.engine, "before_cursor_execute", seen)
            asking = [asyncio.ensure_future(waited.ask()) for _ in range(100)]
            await until_waiting(waited, 100)
            await until(lambda: _is_marked(waited))
            assert len(writes) == 1
            await until(lambda: _num_in_use(database) == 0)
            event.remove(database.engine, "before_cursor_execute", seen)
            waited.judge()
            answers = await asyncio.wait_for(asyncio.gather(*asking), LONG_S / 2)
            assert all(map(target_step, answers))

    asyncio.run(story())


def _num_in_use(database: Database) -> int:
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    return pool.checkedout()


def _is_marked(waited: Waited) -> bool:
    with waited.database.read() as tx:
        marked = tx.execute(
            select(validations.c.waited_until).where(validations.c.id == waited.validation_id)
        ).scalar_one()
        return marked is not None and marked > tx.now


def test_one_more_than_may_wait_is_told_to_come_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING", 1)

    async def story() -> None:
        async with waited_in(database) as waited:
            asking = asyncio.ensure_future(waited.ask())
            await until_waiting(waited, 1)
            with pytest.raises(TooManyRequestsError):
                await waited.ask()
            waited.services.stopping.set()
            await asking

    asyncio.run(story())
