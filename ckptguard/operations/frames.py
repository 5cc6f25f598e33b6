"""Messages between a supervisor and its validation child: a JSON header, and bytes passed on unread.

The child reads hostile bytes. Whatever it writes instead of a message is an outcome of the
validation, never a fault of the supervisor.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from ckptguard.errors import CanaryError

MAX_HEADER_BYTES: Final = 1 << 30
"""A report of a million files is half of this."""
MAX_BODY_BYTES: Final = 6 << 30
"""Metadata of the largest checkpoint (`Limits.max_metadata_bytes`), and its listing."""

_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message.

    Args:
        header: A JSON object.
        body: Passed on, not looked at.
    """

    header: Mapping[str, Any]
    body: bytes = field(default=b"", repr=False)


def write_frame(frame: Frame, stream: BinaryIO) -> None:
    """Write both lengths, the header, the body."""
    header = json.dumps(frame.header).encode()
    stream.write(len(header).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(len(frame.body).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(header)
    stream.write(frame.body)
    stream.flush()


class FrameBuffer:
    """Cuts what comes out of a pipe into frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Take the next bytes; yield the frames that they complete.

        Raises:
            CanaryError: A length is beyond the limits, or a header is no JSON object.
        """
        self._pending += chunk
        while (lengths := self._lengths()) is not None:
            start = 2 * _LENGTH_BYTES
            middle, end = start + lengths[0], start + sum(lengths)
            if len(self._pending) < end:
                return
            header, body = bytes(self._pending[start:middle]), bytes(self._pending[middle:end])
            del self._pending[:end]
            yield Frame(header=_parse(header), body=body)

    def _lengths(self) -> tuple[int, int] | None:
        if len(self._pending) < 2 * _LENGTH_BYTES:
            return None
        header = int.from_bytes(self._pending[:_LENGTH_BYTES], "little")
        body = int.from_bytes(self._pending[_LENGTH_BYTES : 2 * _LENGTH_BYTES], "little")
        if header > MAX_HEADER_BYTES or body > MAX_BODY_BYTES:
            msg = f"a message of {header} and {body} bytes"
            raise CanaryError(msg)
        return header, body


def _parse(header: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(header)
    except (ValueError, RecursionError) as error:
        msg = f"a message that is no JSON: {type(error).__name__}"
        raise CanaryError(msg) from error
    if not isinstance(value, dict):
        msg = "a message that is no JSON object"
        raise CanaryError(msg)
    return value


def read_frame(stream: BinaryIO) -> Frame | None:
    """Read one frame from a stream that blocks; None at its end.

    Raises:
        CanaryError: As `FrameBuffer.feed`.
    """
    buffer = FrameBuffer()
    lengths = stream.read(2 * _LENGTH_BYTES)
    if len(lengths) < 2 * _LENGTH_BYTES:
        return None
    found = list(buffer.feed(lengths))
    wanted = sum(int.from_bytes(lengths[at : at + _LENGTH_BYTES], "little") for at in (0, _LENGTH_BYTES))
    found += buffer.feed(stream.read(wanted))
    return found[0] if found else None
