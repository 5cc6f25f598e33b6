"""A store that remembers the metadata read through it, and counts the bytes it read."""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ckptguard.errors import LimitExceededError
from ckptguard.storage.forwarding import ForwardingReader, ForwardingStore
from ckptguard.storage.memory import MemoryReader
from ckptguard.storage.protocol import RangeReader, Store, read_whole


class CachingStore(ForwardingStore):
    """Reads each small object once: what `read_whole` read through it is answered from memory.

    One process's `blobs` start another's store, so that `.metadata` is not read twice.
    Listings and `stat` always ask the inner store.

    Args:
        inner: The store that is asked.
        blobs: Whole objects already read, by path.
    """

    def __init__(self, inner: Store, blobs: Mapping[str, bytes] | None = None) -> None:
        super().__init__(inner)
        self._blobs = dict(blobs or {})
        self._count = _Count()

    @property
    def blobs(self) -> Mapping[str, bytes]:
        """Whole objects read so far, by path; a live view."""
        return MappingProxyType(self._blobs)

    @property
    def bytes_read(self) -> int:
        """Bytes that the inner store gave, repeated reads included, answers from memory not."""
        return self._count.total_bytes

    def open(self, path: str) -> RangeReader:
        """Open one object: the remembered bytes if there are any, else the inner store's.

        `forget` on the reader reaches past what is remembered.
        """
        if path in self._blobs:
            return _RememberedReader(self._blobs[path], lambda: self._open_inner(path))
        return self._open_inner(path)

    def read_whole(self, path: str, *, max_bytes: int) -> bytes:
        """Read one small object and remember it.

        Raises:
            LimitExceededError: It is larger than `max_bytes`.
            StoreError: As the inner store.
        """
        blob = self._blobs.get(path)
        if blob is None:
            blob = read_whole(self._inner, path, max_bytes=max_bytes)
            self._count.add(len(blob))
            self._blobs[path] = blob
        if len(blob) > max_bytes:
            msg = f"{path} has {len(blob)} bytes, limit {max_bytes}"
            raise LimitExceededError(msg)
        return blob

    def _open_inner(self, path: str) -> RangeReader:
        return CountingReader(self._inner.open(path), self._count)


class _RememberedReader(MemoryReader):
    """Bytes read before; once told to forget them, the store's own."""

    def __init__(self, blob: bytes, open_inner: Callable[[], RangeReader]) -> None:
        super().__init__(blob)
        self._open_inner = open_inner
        self._is_forgotten = False
        self._forgotten_ranges: list[tuple[int, int]] = []
        self._inner: RangeReader | None = None

    def readinto(self, buffer: memoryview, offset: int) -> int:
        if not self._is_forgotten:
            return super().readinto(buffer, offset)
        if self._inner is None:
            self._inner = self._open_inner()
        while self._forgotten_ranges:
            self._inner.forget(*self._forgotten_ranges.pop())
        return self._inner.readinto(buffer, offset)

    def forget(self, offset: int, length_bytes: int) -> None:
        self._is_forgotten = True
        self._forgotten_ranges.append((offset, length_bytes))

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class _Count:
    """Bytes read by any thread."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._lock = threading.Lock()

    def add(self, num_bytes: int) -> None:
        with self._lock:
            self.total_bytes += num_bytes


class CountingReader(ForwardingReader):
    """An open object of the inner store; what it delivers is counted.

    Args:
        inner: The reader that is asked; owned.
        count: Where to add.
    """

    def __init__(self, inner: RangeReader, count: _Count) -> None:
        super().__init__(inner)
        self._count = count

    def readinto(self, buffer: memoryview, offset: int) -> int:
        """Read and count."""
        num_bytes = self._inner.readinto(buffer, offset)
        self._count.add(num_bytes)
        return num_bytes
