"""Launchers that wait for a verdict: none of them holds a connection or a thread.

One poller per process reads the revisions of all runs that are waited for, together; a commit of this
process wakes it at once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from ckptguard.clock import Clock
from ckptguard.errors import ServiceUnavailableError, TooManyRequestsError
from ckptguard_api.answers.targets import Prepared, ResumeTargets, TargetKey
from ckptguard_api.database import Database
from ckptguard_api.domain.resume import HeardWorker, WaitedFor
from ckptguard_api.revisions.reader import RevisionReader
from ckptguard_api.revisions.values import RunKey
from ckptguard_api.services import Services
from ckptguard_api.use_cases.resume_target import hear_workers, wait_for_validations

MAX_WAITING: Final = 500
"""Requests that wait in one process; one more is told to come again (429)."""

POLL_S: Final = 0.2
RECHECK_S: Final = 1.0
"""How soon a waiting request notices that its client, or the last able worker, is gone."""

MARKED_FOR_S: Final = 60.0
MAX_MARKED: Final = 16
"""Validations, the newest, that one waiting launcher moves to the front of the queue."""


class ResumeWaits:
    """Answers that come later; used on one event loop.

    Args:
        services: Of this process; when it is stopping, everybody gets the answer that there is.
        targets: Where answers come from.
        clock: For deadlines.
    """

    def __init__(self, services: Services, targets: ResumeTargets, *, clock: Clock) -> None:
        database = services.database
        self._targets = targets
        self._clock = clock
        self._stopping = services.stopping
        self._changes = Changes(database, services.revisions)
        within_s = services.settings.worker_heard_within_s
        self._workers = _HeardWorkers(database, targets, clock=clock, within_s=within_s)
        self._marks = _Marks(database, targets, clock=clock)
        self._num_waiting = 0

    @property
    def num_waiting(self) -> int:
        """How many requests wait now."""
        return self._num_waiting

    async def answer(
        self, key: TargetKey, *, wait_s: float, index: int | None, is_gone: Callable[[], Awaitable[bool]]
    ) -> Prepared:
        """Return the answer when there is nothing left to wait for, or the time is up.

        Without `index` it waits while a newer checkpoint is queued or running and a worker that can do it
        was heard from lately; with it, while the run's revision is `index`.

        Args:
            key: What is asked.
            wait_s: How long at most.
            index: The revision that the caller knows.
            is_gone: Whether the caller hung up; then any answer will do.

        Raises:
            ServiceUnavailableError: The database gave no answer.
            TooManyRequestsError: `MAX_WAITING` requests wait already.
        """
        ends_s = self._clock.monotonic_s() + wait_s
        prepared = await self._targets.answer(key)
        with self._place():
            while not self._stopping.is_set and await self._is_worth_waiting(
                prepared, key.run[0], index=index
            ):
                left_s = ends_s - self._clock.monotonic_s()
                if left_s <= 0 or self._stopping.is_set or await is_gone():
                    break
                if index is None:
                    await self._marks.mark(prepared.waited_for[:MAX_MARKED])
                timeout_s = min(left_s, RECHECK_S)
                changed = self._changes.wait(key.run, seen=prepared.index, timeout_s=timeout_s)
                await self._stopping.first_of(changed)
                prepared = await self._targets.answer(key)
        return prepared

    async def _is_worth_waiting(self, prepared: Prepared, project_id: int, *, index: int | None) -> bool:
        if index is not None:
            return prepared.index == index
        if not prepared.waited_for:
            return False
        workers = await self._workers.heard()
        return any(
            worker.can_do(waited_for, project_id=project_id)
            for waited_for in set(prepared.waited_for)
            for worker in workers
        )

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._num_waiting >= MAX_WAITING:
            msg = f"{MAX_WAITING} requests wait already"
            raise TooManyRequestsError(msg)
        self._num_waiting += 1
        try:
            yield
        finally:
            self._num_waiting -= 1


class Changes:
    """Tells waiting requests that the revision of their run is another.

    Args:
        database: Its commits are noticed at once, those of other processes by polling.
        revisions: One read for all runs that are waited for.
    """

    def __init__(self, database: Database, revisions: RevisionReader) -> None:
        self._revisions = revisions
        self._waiting: dict[RunKey, dict[asyncio.Future[None], int]] = {}
        self._run_ids: dict[RunKey, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poller: asyncio.Task[None] | None = None
        self._has_commit = asyncio.Event()
        self._chance = random.Random()  # noqa: S311 - spreads polls, guards nothing
        database.commit_listeners.append(self._on_commit)

    async def wait(self, run: RunKey, *, seen: int, timeout_s: float) -> None:
        """Return when the run's revision is not `seen`, or the time is up."""
        self._loop = asyncio.get_running_loop()
        changed = self._loop.create_future()
        self._waiting.setdefault(run, {})[changed] = seen
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            await asyncio.wait([changed], timeout=timeout_s)
        finally:
            self._forget(run, changed)

    def _wake_all(self) -> None:
        for run in self._waiting:
            self._wake(run, revision=None)

    def _forget(self, run: RunKey, changed: asyncio.Future[None]) -> None:
        waiting = self._waiting[run]
        del waiting[changed]
        if not waiting:
            del self._waiting[run]
            self._run_ids.pop(run, None)

    def _on_commit(self, run_ids: frozenset[int]) -> None:
        # From whichever thread committed; the set of runs that are waited for is the loop's.
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._notice, run_ids)

    def _notice(self, run_ids: frozenset[int]) -> None:
        is_known = all(run in self._run_ids for run in self._waiting)
        if not is_known or not run_ids.isdisjoint(self._run_ids.values()):
            self._has_commit.set()

    async def _poll(self) -> None:
        while self._waiting:
            self._has_commit.clear()
            try:
                revisions = await self._revisions.read(self._waiting)
            except ServiceUnavailableError:
                self._wake_all()  # each is told so when it asks again
            else:
                for run in list(self._waiting):
                    known = revisions.runs.get(run)
                    if known is not None:
                        self._run_ids[run] = known.run_id
                    self._wake(run, revision=0 if known is None else known.revision)
            await self._pause()
        self._poller = None

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(POLL_S * self._chance.uniform(0.75, 1.25)):
                await self._has_commit.wait()
        except TimeoutError:
            pass

    def _wake(self, run: RunKey, *, revision: int | None) -> None:
        for changed, seen in self._waiting[run].items():
            if seen != revision and not changed.done():
                changed.set_result(None)


class _HeardWorkers:
    """Workers heard from lately, as of a second ago at most; one read for all who wait."""

    def __init__(self, database: Database, targets: ResumeTargets, *, clock: Clock, within_s: float) -> None:
        self._read = partial(hear_workers, database, within_s=within_s)
        self._targets = targets
        self._clock = clock
        self._heard: Sequence[HeardWorker] = ()
        self._read_at_s: float | None = None
        self._lock = asyncio.Lock()

    async def heard(self) -> Sequence[HeardWorker]:
        async with self._lock:
            now_s = self._clock.monotonic_s()
            if self._read_at_s is None or now_s - self._read_at_s >= RECHECK_S:
                self._heard = await self._targets.call(self._read)
                self._read_at_s = now_s
        return self._heard


class _Marks:
    """Marks validations as waited for; those that are marked are left alone until half the time is over."""

    def __init__(self, database: Database, targets: ResumeTargets, *, clock: Clock) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock
        self._marked_at_s: dict[int, float] = {}

    async def mark(self, waited_for: Sequence[WaitedFor]) -> None:
        now_s = self._clock.monotonic_s()
        self._marked_at_s = {
            one: at_s for one, at_s in self._marked_at_s.items() if now_s - at_s < MARKED_FOR_S / 2
        }
        due = [one.validation_id for one in waited_for if one.validation_id not in self._marked_at_s]
        if not due:
            return
        self._marked_at_s.update(dict.fromkeys(due, now_s))
        try:
            await self._targets.call(partial(wait_for_validations, self._database, due, for_s=MARKED_FOR_S))
        except ServiceUnavailableError:
            for one in due:
                self._marked_at_s.pop(one, None)
            raise
