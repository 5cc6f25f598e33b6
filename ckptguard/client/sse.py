"""Server-sent events: the parser, and what is kept between two connections. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ckptguard.client.decode import parse_json
from ckptguard.errors import ServiceError

MAX_EVENT_BYTES: Final = 4 << 20
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_MAX_ID_CHARS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event of a stream.

    Args:
        kind: A kind of `EventKind`, or `progress`.
        id: To go on from; None: not kept by the service (`progress`).
        data: Its JSON value.
    """

    kind: str
    id: str | None = None
    data: Any = None


@dataclass(slots=True)
class EventParser:
    """Turns bytes, in any pieces, into events (WHATWG HTML, server-sent events)."""

    _rest: bytearray = field(default_factory=bytearray)
    _fields: dict[str, list[str]] = field(default_factory=dict)
    _size_bytes: int = 0
    _is_after_return: bool = False

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that end in this chunk.

        Raises:
            ServiceError: An event is longer than MAX_EVENT_BYTES, or holds no JSON.
        """
        self._rest += self._with_newlines(chunk)
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            self._grow(len(line))
            if line:
                self._take(line.decode("utf-8", errors="replace"))
                continue
            event = self._finish()
            if event is not None:
                yield event
        if len(self._rest) > MAX_EVENT_BYTES:
            self._grow(len(self._rest))

    def _with_newlines(self, chunk: bytes) -> bytes:
        """Make every line end a newline; a CR and its LF may come in two chunks."""
        if self._is_after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._is_after_return = False
        if chunk:
            self._is_after_return = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _grow(self, length_bytes: int) -> None:
        self._size_bytes += length_bytes
        if self._size_bytes > MAX_EVENT_BYTES:
            msg = f"an event of the service is longer than {MAX_EVENT_BYTES} bytes"
            raise ServiceError(msg)

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name:  # a line that begins with a colon is a comment, which keeps the connection alive
            self._fields.setdefault(name, []).append(value.removeprefix(" "))

    def _finish(self) -> ServerEvent | None:
        fields, self._fields, self._size_bytes = self._fields, {}, 0
        if "data" not in fields:
            return None
        event_id = fields.get("id", [""])[-1]
        return ServerEvent(
            kind=fields.get("event", ["message"])[-1],
            id=event_id if event_id and len(event_id) <= _MAX_ID_CHARS and event_id.isprintable() else None,
            data=parse_json("\n".join(fields["data"]).encode()),
        )


@dataclass(slots=True)
class Thread:
    """What holds a stream together over several connections.

    Args:
        last_id: Of the last event seen; sent as `Last-Event-ID`.
        failures: Connections since the last event that gave none.
    """

    last_id: str | None = None
    failures: int = 0

    def saw(self, event: ServerEvent) -> None:
        """Note an event."""
        self.failures = 0
        if event.id is not None:
            self.last_id = event.id

    def next_wait_s(self) -> float:
        """Return how long to wait before the next connection; longer each time."""
        self.failures += 1
        return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (min(self.failures, 10) - 1))
