"""A store as one listing showed it: asked again only for bytes, and only for those that were listed."""

from collections.abc import Iterator
from typing import Final

from ckptguard.errors import ObjectNotFoundError, StoreUnavailableError
from ckptguard.storage.forwarding import ForwardingStore
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.protocol import ObjectStat, RangeReader, Store
from ckptguard.storage.retry import version_of

MAX_FILES: Final = 2_000_000
"""Below one root; beyond it a smaller part is to be named. 0.5 to 2 KiB of memory each."""


class ListedStore(ForwardingStore):
    """Answers `stat` from a listing, and opens an object only while it is the one that was listed.

    Args:
        inner: The store that was listed.
        listing: What it showed.
    """

    def __init__(self, inner: Store, listing: Listing) -> None:
        super().__init__(inner)
        self._listing = listing

    def stat(self, path: str) -> ObjectStat:
        """Describe an object as it was listed; no request is made.

        Raises:
            ObjectNotFoundError: It was not.
        """
        root = self._listing.root
        relative = path.removeprefix(f"{root}/") if root else path
        found = self._listing.files.get(relative)
        if found is None:
            msg = "not in the listing"
            raise ObjectNotFoundError(msg, key=path)
        return found

    def open(self, path: str) -> RangeReader:
        """Open an object.

        Raises:
            StoreUnavailableError: It is another one since it was listed: somebody writes here.
        """
        listed = self.stat(path).version
        reader = self._inner.open(path)
        opened = version_of(reader)
        if None not in (listed, opened) and listed != opened:
            reader.close()
            msg = f"changed since it was listed, from version {listed} to {opened}"
            raise StoreUnavailableError(msg, key=path)
        return reader


def list_once(store: Store, prefix: str, *, max_files: int = MAX_FILES) -> Listing:
    """List everything below a folder; of an object store in one listing.

    Links out of the root are told by local stores only: what object stores call so are keys that
    are no plain paths, and to hear of them would take the listing twice.

    Raises:
        LimitExceededError: More than `max_files`.
        StoreError: It could not be listed.
    """
    asked = _WithoutEscapes(store) if "://" in store.url else store
    listing = list_folder(asked, prefix, max_files=max_files)
    return listing if set(listing.files) != {prefix} else Listing(root=prefix, files={})


class _WithoutEscapes(ForwardingStore):
    """A store that is asked for what can be read, and for nothing else."""

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Yield nothing."""
        del prefix
        return iter(())
