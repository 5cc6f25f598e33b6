"""HTTP heads with bounds that uvicorn does not set: how long they are, and how long they take."""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 32 << 10
HEAD_TIMEOUT_S: Final = 20.0
_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)


class BoundedHttp(HttpToolsProtocol):
    """Ends a connection whose request line and headers are too long, or do not arrive in time.

    Source: httptools (llhttp) keeps what it is sent of a header until the header is complete, and uvicorn
    closes idle connections only after their first answer.
    """

    _head_bytes = 0
    _is_in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - uvicorn's signature
        """Give the first head its time."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._forget_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Give the next head its time."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """Go on to the body, which the app bounds."""
        self._is_in_head = False
        self._forget_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head that is not complete."""
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_TOO_LONG)
                self.transport.close()

    def _expect_head(self) -> None:
        self._forget_timer()
        self._is_in_head, self._head_bytes = True, 0
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
