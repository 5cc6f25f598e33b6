"""A stream that hashes what passes through it, while it passes.

What a torch writer does with a stream, and what follows from it (torch 2.4 to 2.14, filesystem.py):
it only ever appends; the memory that it hands to `write` is its own again when `write` returns; it
ignores the number that `write` returns; and for each small tensor it makes some forty tiny writes and a
flush, which Python's own buffer gathers, in C, before any line of this module runs.
"""

import io
from typing import Any, Final

import xxhash

from ckptguard.integrations.dcp.hashing_thread import HashingThread
from ckptguard.model.checksum import Algorithm, Checksum

BUFFER_BYTES: Final = 64 << 10
"""Shorter writes are gathered up to this; longer ones pass at once, uncopied."""
THREAD_BYTES: Final = 1 << 20
"""From this length on a thread hashes while the bytes are written (measured: benchmarks/guarded_save.py)."""


class _HashingRaw(io.RawIOBase):
    """Hashes each block, and hands it on.

    Args:
        inner: Where it goes.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.state = xxhash.xxh3_128()
        self.length_bytes = 0
        self.is_sound = _position(inner) in {0, None}
        self.is_abandoned = False
        self._helper: HashingThread | None = None

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self.inner.seekable())

    def write(self, data: Any) -> int:
        length: int = data.nbytes  # io.BufferedWriter hands memoryviews on, and nothing else
        if self.is_abandoned:
            return length
        self.length_bytes += length
        helper = self._started_helper() if length >= THREAD_BYTES and self.is_sound else None
        if helper is None:
            self.state.update(data)
            self._write_all(data, length)
            return length
        helper.lend(data)
        try:
            self._write_all(data, length)
        finally:  # the memory is the caller's again when this returns
            self.is_sound &= helper.wait()
        return length

    def tell(self) -> int:
        return self.length_bytes if self.is_sound else int(self.inner.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.is_sound = False
        return int(self.inner.seek(offset, whence))

    def truncate(self, size: int | None = None) -> int:
        self.is_sound = False
        return int(self.inner.truncate(size))

    def end(self) -> None:
        """End the helper thread."""
        if self._helper is not None:
            self._helper.end()
            self._helper = None

    def _started_helper(self) -> HashingThread | None:
        """Return the helper thread; None where no thread can be started any more."""
        if self._helper is None:
            try:
                self._helper = HashingThread(self.state)
            except RuntimeError:  # the interpreter is ending, and an asynchronous save is not done
                return None
        return self._helper

    def _write_all(self, view: memoryview, length: int) -> None:
        taken = self.inner.write(view)
        while taken is not None and taken < length:  # None: a stream that takes all and does not say so
            view, length = view[taken:], length - taken
            taken = self.inner.write(view)


class HashingStream(io.BufferedWriter):
    """Wraps a binary stream at its beginning.

    Args:
        inner: Opened for writing, empty; anything with `write`, `flush` and `close`.

    Guarantees: `checksum` is that of the bytes that `inner` took, or None; a seek, or a stream that
        says it stands elsewhere, makes it None, never wrong.
    """

    def __init__(self, inner: Any) -> None:
        self._hashing = _HashingRaw(inner)
        super().__init__(self._hashing, BUFFER_BYTES)

    def flush(self) -> None:
        """Go on gathering: torch flushes after every item, and nobody reads a file that is not whole.

        What must be with the system by then asks for `fileno`, `finish` or `close`.
        """

    def fileno(self) -> int:
        """Return the inner stream's, with everything handed to the system.

        Who asks for it calls fsync: torch 2.13 does so before it flushes, with the file still empty.
        """
        number: int = self._hashing.inner.fileno()  # may raise UnsupportedOperation, on which torch acts
        if not self._hashing.is_abandoned:
            super().flush()
            self._hashing.inner.flush()
        return number

    def close(self) -> None:
        """Hand everything on and close; again: nothing."""
        if not self._hashing.is_abandoned:
            self.finish()
            self._hashing.inner.close()

    def finish(self) -> None:
        """Hand everything on and compare lengths; nothing more can be written."""
        raw = self._hashing
        if raw.is_abandoned:
            return
        super().flush()
        raw.is_sound = raw.is_sound and _position(raw.inner) in {raw.length_bytes, None}
        self.abandon()

    def abandon(self) -> None:
        """Hand nothing more on, whatever is still buffered."""
        self._hashing.is_abandoned = True
        self._hashing.end()

    @property
    def length_bytes(self) -> int:
        """Return how many bytes were handed on."""
        return self._hashing.length_bytes

    @property
    def checksum(self) -> Checksum | None:
        """Return the checksum of what was handed on; None where it is not known."""
        if not self._hashing.is_sound:
            return None
        return Checksum(algorithm=Algorithm.XXH3_128, hex_digits=self._hashing.state.hexdigest())


def _position(stream: Any) -> int | None:
    try:
        position = stream.tell()
    except (AttributeError, OSError, ValueError):
        return None
    return position if isinstance(position, int) else None
