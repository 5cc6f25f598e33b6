"""A folder of this machine as a store."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from ckptguard.storage.contained import open_regular, stat_regular
from ckptguard.storage.local_walk import Sighting, walk_folder
from ckptguard.storage.os_errors import translating_os_errors
from ckptguard.storage.paths import require_folder, require_plain
from ckptguard.storage.protocol import ObjectStat, RangeReader

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class LocalStore:
    """Regular files below one folder; nothing outside it is ever opened (design §10 Links).

    Args:
        root: The folder; its own links are resolved here, once.
    """

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))

    @property
    def root(self) -> Path:
        """The resolved folder."""
        return self._root

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self._root)

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Yield every regular file at or below `prefix`, linked ones included, folder by folder.

        Raises:
            StoreError: The root is gone.
            StoreUnavailableError, AccessDeniedError: A folder could not be listed.
            LimitExceededError: Nested deeper than `local_walk.MAX_DEPTH`.
        """
        for sighting in walk_folder(self._root, require_folder(prefix)):
            if sighting.status is not None:
                yield _describe(sighting, sighting.status)

    def escapes(self, prefix: str = "") -> Iterator[str]:
        """Yield links out of the root, link loops, FIFOs, devices and sockets; none is opened."""
        for sighting in walk_folder(self._root, require_folder(prefix)):
            if sighting.status is None:
                yield sighting.path

    def stat(self, path: str) -> ObjectStat:
        """Describe one file.

        Raises:
            ObjectNotFoundError, AccessDeniedError, StoreUnavailableError, PathEscapeError.
        """
        with translating_os_errors(require_plain(path)):
            status, is_link = stat_regular(self._root, path)
        return _describe(Sighting(path, status, is_link), status)

    def open(self, path: str) -> RangeReader:
        """Open one file.

        Raises:
            ObjectNotFoundError, AccessDeniedError, StoreUnavailableError, PathEscapeError.
        """
        with translating_os_errors(require_plain(path)):
            return LocalReader(open_regular(self._root, path), path)


class LocalReader:
    """One open file, read by position into the caller's buffer; nothing is copied in between.

    Args:
        descriptor: Owned; closed by `close`.
        path: For errors.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self.version = _version(os.fstat(descriptor))

    def readinto(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset`; fewer bytes only at the end of the file.

        Raises:
            StoreUnavailableError: The medium failed (EIO, ESTALE, ...).
        """
        with translating_os_errors(self._path):
            filled = os.preadv(self._descriptor, (buffer,), offset)
            # One call returns at most 2 GiB, and a network file system may return less than asked.
            while filled < len(buffer):
                more = os.preadv(self._descriptor, (buffer[filled:],), offset + filled)
                if not more:
                    break
                filled += more
        return filled

    def will_need(self, offset: int, length_bytes: int) -> None:
        """Start the kernel's read-ahead."""
        self._advise(offset, length_bytes, "POSIX_FADV_WILLNEED")

    def forget(self, offset: int, length_bytes: int) -> None:
        """Drop clean cached pages; pages that were never written to the medium stay."""
        # The kernel keeps pages that the range covers only in part (man 2 posix_fadvise).
        start = offset - offset % _PAGE_BYTES
        end = offset + length_bytes
        self._advise(start, end + -end % _PAGE_BYTES - start, "POSIX_FADV_DONTNEED")

    def close(self) -> None:
        """Close the file; idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    def _advise(self, offset: int, length_bytes: int, advice: str) -> None:
        if hasattr(os, "posix_fadvise"):  # not on macOS
            with suppress(OSError):
                os.posix_fadvise(self._descriptor, offset, length_bytes, getattr(os, advice))


def _describe(sighting: Sighting, status: os.stat_result) -> ObjectStat:
    return ObjectStat(
        path=sighting.path,
        length_bytes=status.st_size,
        modified_at=_utc(status.st_mtime),
        version=_version(status),
        is_link=sighting.is_link,
    )


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _utc(timestamp_s: float) -> datetime | None:
    """Return None for a time that no calendar holds; a damaged file system may keep one."""
    try:
        return datetime.fromtimestamp(timestamp_s, UTC)
    except (OverflowError, ValueError, OSError):
        return None
