"""uvicorn with this service's bounds, and an end in order: worker, waits, connections, database."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from ckptguard_api.serving.bounded_http import BoundedHttp
from ckptguard_api.serving.listening import Listener
from ckptguard_api.serving.open_files import max_connections

_KEEP_ALIVE_S: Final = 30
_GRACE_S: Final = 5
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
FACTORY: Final = "ckptguard_api.app:from_environment"


def server_config(app: FastAPI | str, listener: Listener, *, num_processes: int = 1) -> uvicorn.Config:
    """Return the configuration of one process, or of each of several."""
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max_connections(),
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=listener.tls_cert,
        ssl_keyfile=listener.tls_key,
        workers=num_processes,
    )


class SingleServer(uvicorn.Server):
    """The server of one process, which ends with exit code 0 when it is told to.

    Args:
        config: See `server_config`.
        on_started: Called when requests are answered.
        before_stop: Called, in a thread, at the first signal, while requests are still answered.
        stop_waits: Called, on the event loop, after that.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_started: Callable[[], None],
        before_stop: Callable[[], None],
        stop_waits: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._before_stop = before_stop
        self._stop_waits = stop_waits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_told = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal; uvicorn would raise it once more afterwards."""
        before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_told:
            self.force_exit = True  # asked twice: do not wait for connections
        self._is_told = True
        threading.Thread(target=self._stop, name="stop", daemon=True).start()

    def _stop(self) -> None:
        self._before_stop()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop_waits)
        self.should_exit = True


class SeveralServers(Multiprocess):
    """Several processes on one socket; each ends its own waits (`ckptguard_api.process_life`).

    Args:
        config: See `server_config`.
        listening: The socket.
        before_stop: Called at the first signal, while requests are still answered.
    """

    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, *, before_stop: Callable[[], None]
    ) -> None:
        super().__init__(config, [listening])
        self._before_stop = before_stop

    def handle_int(self) -> None:
        """Stop."""
        self._before_stop()
        super().handle_int()

    def handle_term(self) -> None:
        """Stop."""
        self._before_stop()
        super().handle_term()
