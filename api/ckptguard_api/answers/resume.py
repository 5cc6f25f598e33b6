"""Answers to launchers in one process: at once, after waiting, or the last known."""

from collections.abc import Awaitable, Callable

from ckptguard.clock import Clock, SystemClock
from ckptguard_api.answers.targets import LastKnown, Prepared, ResumeTargets, TargetKey
from ckptguard_api.answers.waiting import ResumeWaits
from ckptguard_api.revisions.values import Revisions
from ckptguard_api.services import Services


class ResumeAnswers:
    """Everything that the route of resume targets asks; used on one event loop.

    Args:
        services: Of this process.
        clock: Monotonic time, for deadlines and ages; None: this machine's.
    """

    def __init__(self, services: Services, *, clock: Clock | None = None) -> None:
        clock = clock or services.database.clock or SystemClock()
        self._targets = ResumeTargets(services.database, services.revisions, clock=clock)
        self._waits = ResumeWaits(services, self._targets, clock=clock)

    @property
    def num_waiting(self) -> int:
        """How many requests wait now."""
        return self._waits.num_waiting

    async def answer(
        self,
        key: TargetKey,
        *,
        wait_s: float | None,
        index: int | None,
        is_gone: Callable[[], Awaitable[bool]],
        seen: Revisions | None = None,
    ) -> Prepared:
        """Return the answer: now, or as `ResumeWaits.answer` says.

        Args:
            key: What is asked.
            wait_s: How long to wait at most; None or 0: not at all.
            index: The revision that the caller knows.
            is_gone: Whether the caller hung up.
            seen: Revisions that were read since the request came.

        Raises:
            ServiceUnavailableError: The database gave no answer.
            TooManyRequestsError: Too many wait already.
        """
        if not wait_s:
            return await self._targets.answer(key, seen=seen)
        return await self._waits.answer(key, wait_s=wait_s, index=index, is_gone=is_gone)

    def last_known(self, key: TargetKey) -> LastKnown | None:
        """Return the last answer that this process gave, if it still has it; it may be wrong by now."""
        return self._targets.last_known(key)

    def close(self) -> None:
        """End the threads."""
        self._targets.close()
