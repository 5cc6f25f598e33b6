"""What a canary child tells its parent: one JSON object a line, believed only as far as it has this form.

The child reads hostile bytes. Whatever makes it write something else must end as an
outcome of the canary, never as a fault of the parent.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckptguard.errors import CanaryError
from ckptguard.scan.result import scan_from_json

MAX_EVENT_BYTES: Final = 1 << 30
"""The result of a shard with a million tensors is a third of this."""

_NUMBER: Final = (int, float)
_FIELDS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "warm": {},
    "pong": {},
    "ready": {"torch": str, "python": str, "device": str, "import_seconds": _NUMBER},
    "progress": {"bytes_done": int, "files_done": int, "file": (str, type(None)), "findings": int},
    "file": {"scan": dict},
    "failed": {"message": str, "is_about_bytes": bool},
    "done": {"loaded": int, "load_seconds": _NUMBER},
}


class EventLines:
    """Cuts what comes out of a pipe into lines; each byte is looked at once."""

    def __init__(self, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes; yield the lines that they complete.

        Raises:
            CanaryError: A line is longer than any event.
        """
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*self._pending, end))
            self._pending.clear()
            self._pending_bytes = 0
        self._pending.append(rest)
        self._pending_bytes += len(rest)
        if self._pending_bytes > self._max_bytes:
            msg = f"the canary child wrote a line of over {self._max_bytes} bytes"
            raise CanaryError(msg)


def parse_event(line: bytes) -> Mapping[str, Any]:
    """Parse one event; `scan` of a `file` event is a `FileScan`.

    Raises:
        CanaryError: It is none.
    """
    try:
        event = json.loads(line)
        fields = _FIELDS[event["event"]]
        wrong = [name for name, kind in fields.items() if not isinstance(event[name], kind)]
        if "scan" in fields and not wrong:
            event["scan"] = scan_from_json(event["scan"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        msg = f"the canary child wrote what is no event: {type(error).__name__}"
        raise CanaryError(msg) from error
    if wrong:
        msg = f"the canary child wrote an event with a wrong {wrong[0]}"
        raise CanaryError(msg)
    return event  # type: ignore[no-any-return]  # looked at, field by field
