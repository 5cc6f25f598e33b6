"""Wakes requests that wait for work; none of them holds a connection or a thread meanwhile."""

import asyncio
import random
from collections import deque
from contextlib import suppress
from typing import Final

from ckptguard.errors import TooManyRequestsError
from ckptguard_api.database import Database

MAX_WAITING: Final = 2000
WAKE_AT_ONCE: Final = 4
"""A commit wakes the first few only: work for one is no work for hundreds, and each look costs a query."""

POLL_S: Final = 2.0
"""How soon work is found that another process queued, or whose time came; half as long again at most."""


class WorkBell:
    """Belongs to the event loop of the app; commits of this process ring it from any thread.

    Args:
        database: Whose commits ring.
    """

    def __init__(self, database: Database) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._chance = random.Random()  # noqa: S311 - spreads polls, guards nothing
        database.commit_listeners.append(self._on_commit)

    @property
    def num_waiting(self) -> int:
        """How many requests wait just now."""
        return len(self._waiting)

    async def wait(self, timeout_s: float) -> None:
        """Return when there may be work, at the latest after `timeout_s`.

        Raises:
            TooManyRequestsError: Too many wait already.
        """
        if len(self._waiting) >= MAX_WAITING:
            msg = f"{MAX_WAITING} workers wait already"
            raise TooManyRequestsError(msg)
        self._loop = asyncio.get_running_loop()
        rung = self._loop.create_future()
        self._waiting.append(rung)
        try:
            await asyncio.wait([rung], timeout=min(timeout_s, POLL_S * self._chance.uniform(0.5, 1.5)))
        finally:
            with suppress(ValueError):
                self._waiting.remove(rung)

    def _on_commit(self, _run_ids: frozenset[int]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        for _ in range(min(WAKE_AT_ONCE, len(self._waiting))):
            rung = self._waiting.popleft()
            if not rung.done():
                rung.set_result(None)
