"""A checkpoint named by a store and a path in it: opened inside the store's root, or not at all."""

from pathlib import Path

from ckptguard.errors import AccessDeniedError, ConfigError, ObjectNotFoundError, PathEscapeError
from ckptguard.operations.place import Place
from ckptguard.storage.allowed_urls import unsafe_url_reasons
from ckptguard.storage.local import LocalStore
from ckptguard.storage.paths import is_plain_path
from ckptguard.storage.redaction import redacted
from ckptguard.storage.retry import DEFAULT_RETRY, RetryingStore

_LOCAL = "file://"


def place_in_store(url: str, path: str, options: dict[str, object]) -> Place:
    """Open a checkpoint that a service names.

    Whether it is there is not asked: what should be there and is not is a finding.

    Args:
        url: The store's root: a folder of this machine, as a path or `file://`, or any other URL.
        path: Relative to the root.
        options: Endpoint and credentials, of stores that are no folders.

    Raises:
        PathEscapeError: The path is not plain, or a link in it leads out of the root; nothing was opened.
        AccessDeniedError: The URL is of a kind that is not opened.
        ConfigError: Its driver is not installed.
        StoreError: As `open_location`.
    """
    if path and not is_plain_path(path):
        msg = "not a plain path below its store"
        raise PathEscapeError(msg, key=path)
    reasons = unsafe_url_reasons(url)
    if reasons:
        raise AccessDeniedError("; ".join(reasons), key=redacted(url)[:200])
    if "://" in url and not url.startswith(_LOCAL):
        return Place.of(f"{url.rstrip('/')}/{path}".rstrip("/"), options=options)
    return _local(Path(_folder(url)), path)


def _folder(url: str) -> str:
    return url.removeprefix(_LOCAL)


def _local(root: Path, path: str) -> Place:
    root = root.resolve()
    target = root / path
    try:
        resolved = target.resolve()
    except RuntimeError as error:  # a link loop, before Python 3.13
        msg = "a link loop"
        raise PathEscapeError(msg, key=path) from error
    if not resolved.is_relative_to(root):
        msg = "a link in it leads out of its store"
        raise PathEscapeError(msg, key=path)
    try:
        return Place.of(str(target), root=root)
    except ObjectNotFoundError:  # it is gone, or the root is: the listing will tell which
        prefix = resolved.relative_to(root).as_posix()
        store = RetryingStore(LocalStore(root), DEFAULT_RETRY)
        return Place(store=store, prefix="" if prefix == "." else prefix, target=str(target), root=root)
    except ConfigError as error:  # the link was set meanwhile
        raise PathEscapeError(str(error), key=path) from error
