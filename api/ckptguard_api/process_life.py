"""What starts and ends with the app in each process: scheduled work, the end of waits, connections."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, Final

from fastapi import FastAPI

from ckptguard_api.services import Services
from ckptguard_api.use_cases.scheduled import ScheduleRunner

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start scheduled work, and end everything in order.

    Guarantees: a signal that stops the server ends long polls and streams at once; the server itself
    tells the app only after they have ended.
    """
    services: Services = app.state.services
    restore = _stop_waits_with_signals(services) if app.state.stops_with_signals else _nothing
    schedule = ScheduleRunner(services)
    await asyncio.to_thread(schedule.start)
    try:
        yield
    finally:
        services.stopping.set()
        restore()
        await asyncio.to_thread(schedule.stop)
        await services.revisions.close()
        services.database.close()


def answer_steadily() -> None:
    """Take the interpreter's own pauses out of answers; to be called once, when the app is made.

    What stands then is never looked at again by the garbage collector: a full collection would stop the
    process for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()


def _stop_waits_with_signals(services: Services) -> Callable[[], None]:
    """Be called before the server's own handlers; return what takes that back."""
    if threading.current_thread() is not threading.main_thread():
        return _nothing  # whoever runs a server in another thread sets `stopping`
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(services.stopping.set)
        server_handler: Any = before[signal.Signals(number)]
        if callable(server_handler):
            server_handler(number, frame)

    for number, handler in before.items():
        if callable(handler):  # only where a server waits for it
            signal.signal(number, handle)

    def restore() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)

    return restore


def _nothing() -> None:
    pass
