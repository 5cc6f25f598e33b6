"""Any fsspec URL as a store; exceptions of drivers stop here."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType
from urllib.parse import quote, unquote

from ckptguard.errors import ObjectNotFoundError, PathEscapeError, StoreError, StoreUnavailableError
from ckptguard.storage.fsspec_driver import make_filesystem
from ckptguard.storage.fsspec_errors import translating_driver_errors
from ckptguard.storage.fsspec_listing import (
    Info,
    describe,
    has_flat_listing,
    is_folder,
    is_regular,
    list_infos,
)
from ckptguard.storage.fsspec_reader import FsspecReader
from ckptguard.storage.obstore_ranges import open_ranges
from ckptguard.storage.paths import is_plain_path, require_folder, require_plain
from ckptguard.storage.protocol import ObjectStat, RangeReader
from ckptguard.storage.redaction import redacted

MAX_REQUESTS = 4
"""Made at the same time by one store. fsspec serves all of them from one thread, which more
would only crowd; with PART_BYTES and WINDOW_BYTES it bounds a reader's memory to 64 MiB."""

_NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


class FsspecStore:
    """Objects below one fsspec URL.

    For local folders use LocalStore: fsspec's `file:` follows links wherever they lead, so
    here a linked file is an escape and linked folders are not entered.

    Args:
        url: `protocol://...` without credentials, query or fragment.
        options: For the driver, credentials included; never shown.

    Raises:
        ConfigError: As `make_filesystem`.
    """

    def __init__(self, url: str, options: Mapping[str, object] = _NO_OPTIONS) -> None:
        self._url = url
        self._filesystem, root = make_filesystem(url, options)
        self._root = root.rstrip("/")
        self._is_http = url.startswith(("http://", "https://"))
        is_s3 = url.startswith("s3://")
        self._ranges = open_ranges(self._root.partition("/")[0], options) if is_s3 else None
        self._executor = ThreadPoolExecutor(MAX_REQUESTS, thread_name_prefix="ckptguard-range")

    @property
    def url(self) -> str:
        """The URL, without any user or password."""
        return redacted(self._url)

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Yield every object at or below `prefix`; the driver's listing is held in memory.

        Raises:
            StoreError: The bucket or root is not there, or HTTP, which lists no folders.
            StoreUnavailableError, AccessDeniedError: The listing was not answered.
        """
        for path, info in self._infos(require_folder(prefix)):
            if _is_nameable(path) and is_regular(info):
                yield describe(info, path)

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Yield links, devices, and keys that are no plain relative path (`a//b`, `a/../b`)."""
        for path, info in self._infos(require_folder(prefix)):
            if not _is_nameable(path) or not is_regular(info):
                yield path

    def stat(self, path: str) -> ObjectStat:
        """Describe one object.

        Raises:
            ObjectNotFoundError, AccessDeniedError, StoreUnavailableError, PathEscapeError.
            StoreError: The bucket is not there, or the store tells no length.
        """
        info = self._info(path)
        if is_folder(info):
            msg = "a folder"
            raise ObjectNotFoundError(msg, key=path)
        if not is_regular(info):
            msg = "not a regular file"
            raise PathEscapeError(msg, key=path)
        return describe(info, path)

    def open(self, path: str) -> RangeReader:
        """Open one object: one request for its length and version, none for bytes.

        Raises:
            StoreError: As `stat`.
        """
        stat = self.stat(path)
        return FsspecReader(partial(self._fetch, self._native(path), stat), stat, self._executor)

    def _fetch(self, native: str, stat: ObjectStat, start: int, end: int) -> bytes:
        if self._ranges is not None:
            content = self._ranges(native.partition("/")[2], stat, start, end)
        else:
            with translating_driver_errors(stat.path):
                content = self._filesystem.cat_file(native, start=start, end=end)
        if len(content) < end - start:
            msg = f"short answer, {len(content)} of {end - start} bytes"
            raise StoreUnavailableError(msg, key=stat.path)
        if len(content) > end - start:
            msg = "the store ignores byte ranges"
            raise StoreError(msg, key=stat.path)
        return content

    def _info(self, path: str) -> Info:
        native = self._native(path)
        try:
            with translating_driver_errors(path):
                self._filesystem.invalidate_cache()
                info: Info = self._filesystem.info(native)
        except ObjectNotFoundError as error:
            if not has_flat_listing(self._filesystem):  # flat stores name a missing bucket themselves
                self._require_root(error)
            raise
        return info

    def _infos(self, prefix: str) -> Iterator[tuple[str, Info]]:
        """Yield paths below the root with their entries; folders are left out."""
        native = self._native(prefix) if prefix else self._root
        found = self._alone(native, prefix) if self._is_http else self._below(native, prefix)
        for info in found:
            if not is_folder(info):
                yield self._relative(str(info["name"])), info

    def _below(self, native: str, prefix: str) -> Iterator[Info]:
        infos = list_infos(self._filesystem, native)
        try:
            with translating_driver_errors(prefix):
                first = next(infos, None)
        except ObjectNotFoundError:
            yield from self._alone(native, prefix)
            return
        if first is not None:
            yield first
            with translating_driver_errors(prefix):
                yield from infos

    def _alone(self, native: str, prefix: str) -> Iterator[Info]:
        """Yield the one object that is called `prefix`; nothing, if the root at least is there."""
        try:
            with translating_driver_errors(prefix):
                yield self._filesystem.info(native)
        except ObjectNotFoundError as error:
            if self._is_http:
                msg = "HTTP lists no folders, so what is in this one is unknown"
                raise StoreError(msg, key=prefix) from error
            self._require_root(error)

    def _require_root(self, cause: StoreError) -> None:
        """Tell a prefix without objects from a root that is gone or cannot be listed."""
        if self._is_http:
            return
        try:
            with translating_driver_errors(cause.key):
                self._filesystem.info(self._root)
        except ObjectNotFoundError as error:
            msg = f"the store's root is not there: {self.url}"
            raise StoreError(msg) from error

    def _native(self, path: str) -> str:
        if not _is_nameable(require_plain(path)):
            msg = "the driver cannot name this key"
            raise PathEscapeError(msg, key=path)
        return f"{self._root}/{quote(path) if self._is_http else path}"

    def _relative(self, native: str) -> str:
        if self._is_http:
            native = unquote(native)
        return native.removeprefix(f"{self._root}/")


def _is_nameable(path: str) -> bool:
    # s3fs cuts a key there even when it is not version-aware (2026.9 core.py split_path),
    # and would so read another object.
    return is_plain_path(path) and "?versionId=" not in path
