"""A store, and an open object, that ask another one: what wrappers do not change."""

from collections.abc import Iterator
from typing import Self

from ckptguard.storage.protocol import ObjectStat, RangeReader, Store
from ckptguard.storage.retry import version_of


class ForwardingStore:
    """Asks another store for everything; a wrapper overrides what it is there for.

    Args:
        inner: The store that is asked.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def inner(self) -> Store:
        """The store that is asked."""
        return self._inner

    @property
    def url(self) -> str:
        """The inner store's."""
        return self._inner.url

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Ask the inner store."""
        return self._inner.walk(prefix)

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Ask the inner store."""
        return self._inner.escapes(prefix)

    def stat(self, path: str) -> ObjectStat:
        """Ask the inner store."""
        return self._inner.stat(path)

    def open(self, path: str) -> RangeReader:
        """Ask the inner store."""
        return self._inner.open(path)


class ForwardingReader:
    """Asks another reader for everything; a wrapper overrides what it is there for.

    Args:
        inner: The reader that is asked; owned.
    """

    def __init__(self, inner: RangeReader) -> None:
        self._inner = inner

    @property
    def version(self) -> str | None:
        """The inner reader's."""
        return version_of(self._inner)

    def readinto(self, buffer: memoryview, offset: int) -> int:
        """Read from the inner reader."""
        return self._inner.readinto(buffer, offset)

    def will_need(self, offset: int, length_bytes: int) -> None:
        """Pass the hint on."""
        self._inner.will_need(offset, length_bytes)

    def forget(self, offset: int, length_bytes: int) -> None:
        """Pass the request on."""
        self._inner.forget(offset, length_bytes)

    def close(self) -> None:
        """Close the inner reader."""
        self._inner.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()
