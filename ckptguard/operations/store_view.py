"""Where the stores of the service are on this machine, and one checkpoint in them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ckptguard.errors import ConfigError, PathEscapeError, StoreUnavailableError
from ckptguard.storage.allowed_urls import refuse_unsafe_url
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.open_url import open_location
from ckptguard.storage.paths import is_plain_path
from ckptguard.storage.protocol import Store
from ckptguard.storage.redaction import redacted
from ckptguard.storage.retry import RetryPolicy

MAX_FILES: Final = 1_000_000
_LOCAL_SCHEMES: Final = ("file://", "local://")
_RETRY: Final = RetryPolicy(attempts=3, timeout_s=20.0)


def parse_stores(text: str) -> dict[str, str]:
    """Parse `name=url,name=url`.

    Raises:
        ConfigError: A pair is none, or a name comes twice.
    """
    stores: dict[str, str] = {}
    for pair in filter(None, (word.strip() for word in text.split(","))):
        name, separator, url = pair.partition("=")
        if not separator or not name or not url or name in stores:
            msg = f"stores are NAME=PATH, each name once, not {redacted(pair)!r}"
            raise ConfigError(msg)
        stores[name] = url
    return stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One folder of a store, as this machine reaches it.

    Args:
        text: Local path or URL, for a person and for a launcher: printable, on one line.
        root: Of the store; nothing outside it is opened.
        path: Of the folder in the store; "" is the store itself.
    """

    text: str
    root: str
    path: str

    def open(self) -> tuple[Store, str]:
        """Return the store and the folder in it.

        Raises:
            StoreUnavailableError: The store itself is not there on this machine.
            PathEscapeError: The folder's links lead out of the store.
            StoreError: As `open_location`.
        """
        if "://" in self.root:
            return open_location(self.text, retry=_RETRY)
        if not Path(self.root).is_dir():
            msg = "no such store on this machine (--store NAME=PATH says where it is)"
            raise StoreUnavailableError(msg, key=self.root)
        try:
            return open_location(self.text, root=Path(self.root), retry=_RETRY)
        except ConfigError as error:
            msg = f"leads out of the store {self.root}"
            raise PathEscapeError(msg, key=self.text) from error

    def list(self) -> Listing:
        """List the checkpoint; one that is a single file is listed under its name.

        Raises:
            StoreError: It could not be listed, or is not there.
            LimitExceededError: More than MAX_FILES files.
        """
        store, prefix = self.open()
        listing = list_folder(store, prefix, max_files=MAX_FILES)
        if set(listing.files) == {prefix}:
            name = prefix.rpartition("/")[2]
            return Listing(root=prefix.removesuffix(name).rstrip("/"), files={name: listing.files[prefix]})
        return listing


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """The stores of this machine.

    Args:
        roots: Store name to local path or URL; a store that is not named is where the service has it.
    """

    roots: Mapping[str, str] = field(default_factory=dict)

    def spot(self, store: str, path: str, url: str) -> Spot:
        """Return where a checkpoint of the service is on this machine.

        Args:
            store: Name of its store.
            path: Its folder, relative to the store; hostile.
            url: The same, as the service sees it; hostile.

        Raises:
            PathEscapeError: The folder is none inside the store, or no text for one line.
        """
        if path and not is_plain_path(path):
            msg = "the service names a folder that is none inside its store"
            raise PathEscapeError(msg, key=path)
        root = self.roots.get(store)
        root = _root_of_url(url, path) if root is None else root.rstrip("/") or "/"
        root = _without_local_scheme(root)
        text = f"{root.rstrip('/')}/{path}" if path else root
        if not text.isprintable():
            msg = "the service names a folder with characters that no line may hold"
            raise PathEscapeError(msg, key=text)
        return Spot(text=text, root=root, path=path)


def _root_of_url(url: str, path: str) -> str:
    """Return the store's root: what is left of the URL without the path."""
    bare = url.rstrip("/")
    if path and not bare.endswith(f"/{path}"):
        msg = "the service's address of a checkpoint does not end with its folder"
        raise PathEscapeError(msg, key=redacted(url))
    try:
        refuse_unsafe_url(bare)
    except ConfigError as error:
        msg = f"the service's address of a checkpoint is not opened ({error}); see --store"
        raise PathEscapeError(msg) from error
    return bare.removesuffix(f"/{path}") if path else bare


def _without_local_scheme(root: str) -> str:
    for scheme in _LOCAL_SCHEMES:
        if root.startswith(scheme):
            return root.removeprefix(scheme) or "/"
    return root if "://" in root else str(Path(root).absolute())
