"""Pieces of an item as a file, for decoders that read one."""

import io
from collections.abc import Iterator


class PieceSource(io.RawIOBase):
    """A file that is read forward.

    Args:
        pieces: Its bytes; each piece lives until the next is asked for.
    """

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes; none at the end."""
        if not self._rest:
            self._rest = next(self._pieces, memoryview(b""))
        count = len(self._rest) if size < 0 else size
        taken, self._rest = self._rest[:count], self._rest[count:]
        return bytes(taken)
