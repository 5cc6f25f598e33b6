"""A store past its caches, for second looks."""

from ckptguard.storage.forwarding import ForwardingStore
from ckptguard.storage.protocol import RangeReader


class FreshStore(ForwardingStore):
    """Another store, of which every object's cached ranges are dropped as it is opened.

    Args:
        inner: The store that is asked.
    """

    def open(self, path: str) -> RangeReader:
        """Open one object, so that its first read reaches the medium."""
        length_bytes = self._inner.stat(path).length_bytes
        reader = self._inner.open(path)
        reader.forget(0, length_bytes)
        return reader
