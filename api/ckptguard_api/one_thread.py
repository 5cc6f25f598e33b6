"""A thread that calls one function after the other, for an event loop that asks it all the time."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OneThread(Generic[T]):
    """Calls functions in the order in which they were asked for.

    A way there and back costs half of what `run_in_executor` takes, which makes two futures of each call
    and locks both (docs/measurements.md).

    Args:
        name: Of the thread, which starts at the first call.
    """

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Return what the function returns, or raise what it raises; who gives up leaves it running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._asked.put(lambda: _answer(function, answer, loop))
        return await answer

    def close(self, last: Callable[[], None]) -> None:
        """Call a last function where there was a first, and wait for the end; not from the event loop."""
        if self._thread is not None:
            self._asked.put(last)
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (call := self._asked.get()) is not None:
            call()


def _answer(function: Callable[[], T], answer: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001 - whatever it is, who asked is told
        _tell(loop, answer.set_exception, answer, error)
    else:
        _tell(loop, answer.set_result, answer, value)


def _tell(
    loop: asyncio.AbstractEventLoop, tell: Callable[[Any], None], answer: asyncio.Future[T], told: object
) -> None:
    def unless_given_up() -> None:
        if not answer.done():
            tell(told)

    if not loop.is_closed():
        loop.call_soon_threadsafe(unless_given_up)
