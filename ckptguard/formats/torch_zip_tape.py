"""A forward-only view of bytes that arrive in pieces, for a parser written as a coroutine."""

from collections.abc import Generator
from typing import Final

_UNKNOWN_LENGTH: Final = 1 << 62


class PastEndError(Exception):
    """The parser asked for bytes beyond the item's end; the item lies about itself."""


class Tape:
    """Bytes of one item, fed in any pieces and consumed in order.

    The parser is a generator that delegates to `peek`, which yields None while bytes
    are missing. Only what was peeked at across a piece's end is copied and held.

    Args:
        length_bytes: Of the item; nothing beyond is ever waited for. None where the end
            is not known before it comes (`end`).
    """

    __slots__ = ("_at", "_held", "_view", "is_length_known", "length_bytes", "offset")

    def __init__(self, length_bytes: int | None) -> None:
        self.is_length_known = length_bytes is not None
        self.length_bytes = _UNKNOWN_LENGTH if length_bytes is None else length_bytes
        self.offset = 0
        self._held = bytearray()
        self._view = memoryview(b"")
        self._at = 0

    @property
    def remaining_bytes(self) -> int:
        """Bytes of the item after the present position, arrived or not."""
        return self.length_bytes - self.offset

    @property
    def arrived_bytes(self) -> int:
        """Bytes that are here and not consumed."""
        return len(self._held) + len(self._view) - self._at

    def refill(self, view: memoryview) -> None:
        """Hand over the next piece; the last one must have been drained by `peek` or `pop`."""
        self._view = view
        self._at = 0

    def end(self) -> None:
        """Say that no more bytes will come."""
        self.length_bytes = self.offset + self.arrived_bytes
        self.is_length_known = True

    def peek(self, length_bytes: int) -> Generator[None, None, bytes]:
        """Wait for bytes and return a copy of them without consuming.

        Raises:
            PastEndError: The item has fewer.
        """
        arrived = yield from self.peek_up_to(length_bytes)
        if len(arrived) < length_bytes:
            raise PastEndError
        return arrived

    def peek_up_to(self, length_bytes: int) -> Generator[None, None, bytes]:
        """As `peek`, but return fewer bytes where the item has fewer."""
        if self.offset + length_bytes > self.length_bytes:
            length_bytes = self.remaining_bytes
        end = self._at + length_bytes
        if not self._held and end <= len(self._view):
            return bytes(self._view[self._at : end])
        while self.arrived_bytes < (length_bytes := min(length_bytes, self.remaining_bytes)):
            self._hold(len(self._view) - self._at)
            yield None
        self._hold(length_bytes - len(self._held))
        return bytes(self._held[:length_bytes])

    def take(self, length_bytes: int) -> Generator[None, None, bytes]:
        """Wait for bytes and consume them; raises as `peek`."""
        taken = yield from self.peek(length_bytes)
        self.skip(length_bytes)
        return taken

    def skip(self, length_bytes: int) -> None:
        """Consume bytes that were peeked at."""
        self.offset += length_bytes
        if self._held:
            from_held = min(length_bytes, len(self._held))
            del self._held[:from_held]
            length_bytes -= from_held
        self._at += length_bytes

    def pop(self, limit_bytes: int) -> memoryview:
        """Consume and return up to `limit_bytes` of what is here, without a copy where possible.

        Empty if nothing is here: then yield None and come again.
        """
        if self._held:
            piece = memoryview(bytes(self._held[:limit_bytes]))
        else:
            piece = self._view[self._at : self._at + limit_bytes]
        self.skip(len(piece))
        return piece

    def _hold(self, length_bytes: int) -> None:
        if length_bytes > 0:
            self._held += self._view[self._at : self._at + length_bytes]
            self._at += length_bytes
