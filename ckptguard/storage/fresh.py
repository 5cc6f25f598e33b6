"""A store past its caches, for second looks."""

from collections.abc import Iterator

from ckptguard.storage.protocol import ObjectStat, RangeReader, Store


class FreshStore:
    """Another store, of which every object's cached ranges are dropped as it is opened.

    Args:
        inner: The store that is asked.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner

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
        """Open one object, so that its first read reaches the medium."""
        length_bytes = self._inner.stat(path).length_bytes
        reader = self._inner.open(path)
        reader.forget(0, length_bytes)
        return reader
