"""Opening files below a root so that nothing outside it can be reached.

Links are resolved once, by name; the resolved path is then walked from the root one
component at a time, each opened relative to the last with O_NOFOLLOW. A link swapped in
between the two steps is refused by the kernel, never followed.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckptguard.errors import ObjectNotFoundError, PathEscapeError, StoreError, StoreUnavailableError

# O_PATH (Linux) needs only the right to pass through a folder, not to list it.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: should a FIFO be swapped in after the look, the open returns instead of waiting.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def resolve(root: Path, path: str) -> tuple[str, ...]:
    """Resolve all links of `path` by name and return where it leads, as components below `root`.

    Args:
        root: The root, itself resolved.
        path: Plain relative path, or "" for the root.

    Raises:
        PathEscapeError: It leads outside; nothing was opened.
    """
    target = Path(os.path.realpath(root / path))
    if not target.is_relative_to(root):
        msg = "leads outside the allowed root"
        raise PathEscapeError(msg, key=path)
    return target.relative_to(root).parts


@contextmanager
def opened_folder(root: Path, parts: tuple[str, ...], *, to_list: bool = False) -> Iterator[int]:
    """Give a descriptor of the folder `parts` below `root`; no component may be a link.

    Args:
        root: The root, itself resolved.
        parts: Components below it, as `resolve` returns them.
        to_list: Open it for listing, not only to reach what is in it.

    Raises:
        StoreError: The root itself is gone; not an answer about anything below it.
        OSError: As the kernel answers; ELOOP or ENOTDIR for a link.
    """
    flags = [_PASS] * len(parts) + [_LIST if to_list else _PASS]
    folder = _open_root(root, flags[0])
    try:
        for part, flag in zip(parts, flags[1:], strict=True):
            inner = os.open(part, flag, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def stat_regular(root: Path, path: str) -> tuple[os.stat_result, bool]:
    """Describe the regular file that `path` leads to, and say whether a link was on the way.

    Raises:
        PathEscapeError: Outside the root, or a FIFO, device or socket.
        ObjectNotFoundError: A folder.
        StoreError, OSError: As `opened_folder`.
    """
    parts = resolve(root, path)
    with opened_folder(root, parts[:-1]) as folder:
        status = _look(folder, parts, path)
    return status, parts != tuple(path.split("/"))


def open_regular(root: Path, path: str) -> int:
    """Open the regular file that `path` leads to; anything else is looked at and never opened.

    Returns:
        A descriptor that the caller closes.

    Raises:
        PathEscapeError, ObjectNotFoundError, StoreError, OSError: As `stat_regular`.
        StoreUnavailableError: It was replaced between the look and the open.
    """
    parts = resolve(root, path)
    with opened_folder(root, parts[:-1]) as folder:
        looked_at = _look(folder, parts, path)
        descriptor = os.open(parts[-1], _READ, dir_fd=folder)
    if os.path.samestat(looked_at, os.fstat(descriptor)):
        os.set_blocking(descriptor, True)
        return descriptor
    os.close(descriptor)
    msg = "replaced while being opened"
    raise StoreUnavailableError(msg, key=path)


def _open_root(root: Path, flags: int) -> int:
    try:
        return os.open(root, flags)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        # An unmounted disk must not look like a folder in which everything was deleted.
        msg = f"the store's root is not there: {root}"
        raise StoreError(msg) from error


def _look(folder: int, parts: tuple[str, ...], path: str) -> os.stat_result:
    """Return the status of a regular file, or say why it is none."""
    if not parts:
        msg = "a folder"
        raise ObjectNotFoundError(msg, key=path)
    status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        msg = "a folder"
        raise ObjectNotFoundError(msg, key=path)
    if not stat.S_ISREG(status.st_mode):
        msg = "not a regular file"
        raise PathEscapeError(msg, key=path)
    return status
