"""From what a user types, a path or a URL, to a store and a prefix in it."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from ckptguard.errors import ConfigError
from ckptguard.storage.fsspec_store import FsspecStore
from ckptguard.storage.local_root import resolve_local
from ckptguard.storage.paths import is_plain_path
from ckptguard.storage.protocol import Store
from ckptguard.storage.redaction import redacted
from ckptguard.storage.retry import DEFAULT_RETRY, RetryingStore, RetryPolicy

_LOCAL = frozenset({"file", "local"})
_HTTP = frozenset({"http", "https"})
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


def open_location(
    target: str,
    *,
    root: Path | None = None,
    options: Mapping[str, object] = _NO_OPTIONS,
    retry: RetryPolicy = DEFAULT_RETRY,
) -> tuple[Store, str]:
    """Return the store that `target` is in, its requests retried, and the prefix in it.

    A URL's store is its bucket or host, so that no other can be reached through it.

    Args:
        target: A local path, `file://...`, or any `protocol://authority/path` of fsspec.
        root: For local paths, as `resolve_local`.
        options: For the fsspec driver: credentials, endpoint; never shown.
        retry: Bounds.

    Raises:
        ConfigError: Unknown protocol, driver not installed (says what to install), chained
            or otherwise unusable URL, or `root` given for a URL.
        ObjectNotFoundError: Nothing stands at a local path. A URL is not asked here.
        AccessDeniedError, StoreUnavailableError: A local path could not be looked at.
    """
    scheme, separator, rest = target.partition("://")
    if "::" in scheme and separator:
        msg = f"chained URLs would read from a cache, not from the store: {redacted(target)}"
        raise ConfigError(msg)
    if not separator or not _SCHEME.fullmatch(scheme):
        return _local(target, root, retry)
    if scheme in _LOCAL:
        return _local(rest, root, retry)
    if root is not None:
        msg = f"a root is for local paths, not for {redacted(target)}"
        raise ConfigError(msg)
    store_url, prefix = split_url(target)
    return RetryingStore(FsspecStore(store_url, options), retry), prefix


def split_url(url: str) -> tuple[str, str]:
    """Split a URL into its bucket or host, and a plain path below it.

    `#`, `?` and `%` are ordinary characters of a key, except under HTTP.

    Raises:
        ConfigError: No bucket or host, a path that is not plain, or a query (which would
            be part of no other object's name, and is often a credential).
    """
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    path = path.rstrip("/")
    if scheme in _HTTP:
        _require_no_query(url)
        path = unquote(path)
    if not authority and scheme != "memory":
        msg = f"no bucket or host in {redacted(url)}"
        raise ConfigError(msg)
    if path and not is_plain_path(path):
        msg = f"not a plain path (empty, '.' or '..' segments): {redacted(url)}"
        raise ConfigError(msg)
    return f"{scheme}://{authority}", path


def _require_no_query(url: str) -> None:
    if "?" in url or "#" in url:
        msg = f"URLs with a query or fragment are not supported: {redacted(url)}"
        raise ConfigError(msg)


def _local(path: str, root: Path | None, retry: RetryPolicy) -> tuple[Store, str]:
    store, prefix = resolve_local(path, root=root)
    return RetryingStore(store, retry), prefix
