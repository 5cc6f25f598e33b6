"""The end of this process, told to everyone who waits."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Stopping:
    """Set once, when the server was told to stop; long polls and streams then end at once.

    Belongs to the event loop of the app; other threads only ask `is_set`.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        """Whether the server is going down."""
        return self._event.is_set()

    def set(self) -> None:
        """Wake everyone who waits."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Return after `timeout_s`, or earlier with True when the server is going down."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout_s)
        return self.is_set

    async def first_of(self, awaitable: Awaitable[T]) -> T | None:
        """Return what comes of `awaitable`, or None, with it cancelled, when the server is going down."""
        work = asyncio.ensure_future(awaitable)
        stop = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            stop.cancel()
            work.cancel()
