"""What a driver's listing says, in the words of the store contract."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ckptguard.errors import LimitExceededError, StoreError
from ckptguard.storage.fsspec_driver import Filesystem
from ckptguard.storage.protocol import ObjectStat

MAX_DEPTH = 64

Info = Mapping[str, Any]
"""One entry as drivers give it: `name`, `size`, `type`, and keys of their own."""

_TIME_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
# The first that is set: s3 (VersionId only where `version_aware`), gcs, azure, http, hdfs.
_VERSION_KEYS = ("VersionId", "generation", "version_id", "ETag", "etag", "e_tag", "md5Hash", "content_md5")


def list_infos(filesystem: Filesystem, folder: str) -> Iterator[Info]:
    """Yield every entry at or below `folder`, asking the store anew.

    Raises:
        FileNotFoundError: Nothing is there.
        LimitExceededError: Nested deeper than MAX_DEPTH.
        Exception: Whatever the driver raises.
    """
    filesystem.invalidate_cache()
    if has_flat_listing(filesystem):
        yield from filesystem.find(folder, detail=True, withdirs=False).values()
        return
    yield from _walk(filesystem, folder)


def describe(info: Info, path: str) -> ObjectStat:
    """Turn a file's entry into a stat.

    Raises:
        StoreError: The store tells no length.
    """
    length = info.get("size")
    if not isinstance(length, int):
        msg = "the store tells no length"
        raise StoreError(msg, key=path)
    modified_at = next((time for key in _TIME_KEYS if (time := _utc(info.get(key))) is not None), None)
    return ObjectStat(
        path=path, length_bytes=length, modified_at=modified_at, version=_version(info, modified_at, length)
    )


def is_folder(info: Info) -> bool:
    """Say whether this is a folder, or the empty object that object stores keep in place of one."""
    is_placeholder = str(info["name"]).endswith("/") and not info.get("size")
    return info.get("type") == "directory" or is_placeholder


def is_regular(info: Info) -> bool:
    """Say whether this is a plain file: no link, no device."""
    return info.get("type") == "file" and not info.get("islink", False)


def has_flat_listing(filesystem: Filesystem) -> bool:
    """Say whether the driver lists a whole tree by its own means.

    fsspec's generic `find` goes through `walk`, which leaves out folders that it cannot
    read (fsspec 2026.9 spec.py: `on_error="omit"`, not passed on below the first level).
    """
    from fsspec.asyn import AsyncFileSystem  # noqa: PLC0415 - loaded with the first driver
    from fsspec.spec import AbstractFileSystem  # noqa: PLC0415

    driver = type(filesystem)
    if issubclass(driver, AsyncFileSystem):
        return driver._find is not AsyncFileSystem._find  # noqa: SLF001 - no public way to tell
    return driver.find is not AbstractFileSystem.find


def _walk(filesystem: Filesystem, folder: str) -> Iterator[Info]:
    pending = [(folder, 0)]
    while pending:
        here, depth = pending.pop()
        if depth > MAX_DEPTH:
            msg = f"folders nested deeper than {MAX_DEPTH}: {here}"
            raise LimitExceededError(msg)
        for info in _listed(filesystem, here, is_first=depth == 0):
            if info.get("type") != "directory":
                yield info
            elif str(info["name"]).rstrip("/") != here.rstrip("/"):
                pending.append((info["name"], depth + 1))


def _listed(filesystem: Filesystem, folder: str, *, is_first: bool) -> list[Info]:
    try:
        entries: list[Info] = filesystem.ls(folder, detail=True)
    except FileNotFoundError:
        if is_first:
            raise
        return []  # gone since its parent was listed
    return entries


def _version(info: Info, modified_at: datetime | None, length: int) -> str | None:
    given = (info.get(key) for key in _VERSION_KEYS)
    version = next((value for value in given if isinstance(value, str) and value not in ("", "null")), None)
    if version is not None:
        return version.strip('"')
    if modified_at is None:
        return None
    return "-".join([*([str(info["ino"])] if "ino" in info else []), modified_at.isoformat(), str(length)])


def _utc(value: object) -> datetime | None:
    """Read a time as drivers give it: aware or naive UTC datetime, seconds, ISO 8601 text."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
