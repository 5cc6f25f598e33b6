"""Resume targets, prepared: the bytes of an answer are kept as long as they are exact."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from ckptguard.clock import Clock
from ckptguard.errors import ServiceUnavailableError
from ckptguard_api.answers.encoding import etag_of, to_bytes
from ckptguard_api.database import Database
from ckptguard_api.domain.resume import Question, WaitedFor
from ckptguard_api.revisions.reader import READ_TIMEOUT_S, RevisionReader
from ckptguard_api.revisions.values import Revisions, RunKey
from ckptguard_api.use_cases.resume_target import ResumeAnswer, answer_resume_target, unknown_run

T = TypeVar("T")

MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Of all prepared answers together; one of a healthy run takes about 1 KiB, one that names 100 about 50."""

_OVERHEAD_BYTES: Final = 1024
_NUM_THREADS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKey:
    """What an answer is an answer to."""

    run: RunKey
    question: Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An answer, ready to be sent.

    Args:
        body: JSON.
        etag: Its validator.
        index: The run's revision that it was read at.
        made_at_s: Monotonic time before it was read.
        fresh_until_s: Monotonic time at which time alone may have changed it; None: never.
        renew_at_s: Monotonic time from which it is read again while it is still given; None: never.
        waited_for: Open validations that may give a newer target.
    """

    body: bytes
    etag: str
    index: int
    made_at_s: float
    fresh_until_s: float | None
    renew_at_s: float | None
    waited_for: tuple[WaitedFor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastKnown:
    """An answer that was exact some time ago.

    Args:
        body: JSON, as it was sent.
        age_s: Seconds since it was read.
    """

    body: bytes
    age_s: float


class ResumeTargets:
    """Exact answers for one process; used on one event loop.

    Guarantees: an answer shows every transaction, of any process, that was committed before it was asked
    for, except that the progress of running validations may be some seconds old. At most `MAX_KEPT_BYTES` are
    kept; the longest unused go first.

    Args:
        database: Read by a few threads, never by the event loop.
        revisions: What kept answers are held against.
        clock: For ages of kept answers.
    """

    def __init__(self, database: Database, revisions: RevisionReader, *, clock: Clock) -> None:
        self._database = database
        self._revisions = revisions
        self._clock = clock
        self._kept = _KeptAnswers(MAX_KEPT_BYTES)
        self._under_way: dict[TargetKey, asyncio.Task[Prepared]] = {}
        self._threads: ThreadPoolExecutor | None = None

    async def answer(self, key: TargetKey, *, seen: Revisions | None = None) -> Prepared:
        """Return the answer as of now.

        Args:
            key: What is asked.
            seen: What was read since it was asked; read anew where the run is not among it.

        Raises:
            ServiceUnavailableError: The database gave no answer; `last_known` may have one.
        """
        if seen is None or key.run not in seen.asked:
            seen = await self._revisions.read((key.run,))
        revision = seen.runs.get(key.run)
        if revision is None:
            return self._prepare(unknown_run(key.run[1], key.question), made_at_s=self._clock.monotonic_s())
        kept = self._kept.get(key)
        if kept is not None and kept.index == revision.revision and self._is_fresh(kept):
            self._renew_in_time(key, kept)
            return kept
        under_way = self._under_way.get(key)
        if under_way is not None:
            prepared = await _shared(under_way)
            if prepared.index >= revision.revision and self._is_fresh(prepared):
                return prepared
        return await self._read(key)

    def last_known(self, key: TargetKey) -> LastKnown | None:
        """Return the last answer that this process gave, if it still has it; it may be wrong by now."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        return LastKnown(body=kept.body, age_s=self._clock.monotonic_s() - kept.made_at_s)

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function that asks the database, in one of the threads.

        Raises:
            ServiceUnavailableError: It took too long; it may still go on.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="targets")
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except TimeoutError as error:
            msg = f"the database gave no answer within {READ_TIMEOUT_S:g} s"
            raise ServiceUnavailableError(msg) from error

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None

    def _renew_in_time(self, key: TargetKey, kept: Prepared) -> None:
        is_due = kept.renew_at_s is not None and self._clock.monotonic_s() >= kept.renew_at_s
        if is_due and key not in self._under_way:
            self._begin(key)

    async def _read(self, key: TargetKey) -> Prepared:
        # Another may have begun meanwhile, after this request came: its answer is as good.
        return await _shared(self._begin(key))

    def _begin(self, key: TargetKey) -> asyncio.Task[Prepared]:
        task = asyncio.create_task(self._read_alone(key))
        self._under_way[key] = task

        def end(_: object) -> None:
            if self._under_way.get(key) is task:
                del self._under_way[key]
            if not task.cancelled():
                task.exception()  # whoever waits is told; nobody may

        task.add_done_callback(end)
        return task

    async def _read_alone(self, key: TargetKey) -> Prepared:
        made_at_s = self._clock.monotonic_s()
        project_id, run = key.run
        ask = partial(
            answer_resume_target, self._database, project_id=project_id, run=run, question=key.question
        )
        prepared = await self.call(lambda: self._prepare(ask(), made_at_s=made_at_s))
        self._kept.put(key, prepared)
        return prepared

    def _prepare(self, answer: ResumeAnswer, *, made_at_s: float) -> Prepared:
        body = to_bytes(answer)
        return Prepared(
            body=body,
            etag=etag_of(body),
            index=answer.index,
            made_at_s=made_at_s,
            fresh_until_s=_at(made_at_s, answer.fresh_for_s),
            renew_at_s=_at(made_at_s, answer.renew_after_s),
            waited_for=answer.waited_for,
        )

    def _is_fresh(self, prepared: Prepared) -> bool:
        return prepared.fresh_until_s is None or self._clock.monotonic_s() < prepared.fresh_until_s


def _at(made_at_s: float, after_s: float | None) -> float | None:
    return None if after_s is None else made_at_s + after_s


async def _shared(task: asyncio.Task[Prepared]) -> Prepared:
    # The end of one request does not end what others wait for.
    return await asyncio.shield(task)


class _KeptAnswers:
    """The answers used last, bounded by their bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._answers: OrderedDict[TargetKey, Prepared] = OrderedDict()

    def get(self, key: TargetKey) -> Prepared | None:
        found = self._answers.get(key)
        if found is not None:
            self._answers.move_to_end(key)
        return found

    def put(self, key: TargetKey, prepared: Prepared) -> None:
        before = self._answers.pop(key, None)
        if before is not None:
            self._num_bytes -= _size(before)
            if before.index > prepared.index:
                prepared = before  # read earlier, finished later
        self._answers[key] = prepared
        self._num_bytes += _size(prepared)
        while self._num_bytes > self._max_bytes:
            self._num_bytes -= _size(self._answers.popitem(last=False)[1])


def _size(prepared: Prepared) -> int:
    return len(prepared.body) + _OVERHEAD_BYTES
