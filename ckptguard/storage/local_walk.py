"""Walking a local folder: links followed inside the root, cycles ended, everything else only named."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ckptguard.errors import LimitExceededError, PathEscapeError, StoreUnavailableError
from ckptguard.storage.contained import opened_folder, resolve
from ckptguard.storage.os_errors import translating_os_errors

MAX_DEPTH = 64
MAX_FOLDERS = 1_000_000

_NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP})


class Sighting(NamedTuple):
    """One name met on the way.

    Args:
        path: Relative to the store's root, as reached, links unresolved.
        status: Of the regular file; None for what must not be opened: a link out of the
            root, a link loop, a FIFO, a device, a socket.
        is_link: Reached through a symbolic link.
    """

    path: str
    status: os.stat_result | None
    is_link: bool = False


class _Folder(NamedTuple):
    """A folder still to be listed.

    Args:
        path: As reached, links unresolved.
        parts: Where it really is, as components below the root.
        above: `parts` of every folder on the way to it.
    """

    path: str
    parts: tuple[str, ...]
    above: frozenset[tuple[str, ...]]
    is_link: bool


def walk_folder(root: Path, path: str) -> Iterator[Sighting]:
    """Yield everything at or below `path` that is not a folder.

    A folder that is its own ancestor through a link is not entered again. What vanishes
    between being listed and being looked at is left out: it is gone.

    Args:
        root: The root, itself resolved.
        path: Plain relative path, or "" for the root.

    Raises:
        StoreError: The root is gone.
        StoreUnavailableError, AccessDeniedError: A folder could not be listed, or an entry
            not looked at.
        LimitExceededError: Deeper than MAX_DEPTH or more than MAX_FOLDERS.
    """
    pending: list[_Folder] = []
    with translating_os_errors(path):
        yield from _at(root, _Folder(path, (), frozenset(), is_link=False), pending)
    num_folders = 0
    while pending:
        folder = pending.pop()
        num_folders += 1
        _require_bounded(folder, num_folders)
        with translating_os_errors(folder.path), _replacement_noticed(folder.path):
            yield from _entries(root, folder, pending)


def _entries(root: Path, folder: _Folder, pending: list[_Folder]) -> Iterator[Sighting]:
    try:
        with opened_folder(root, folder.parts, to_list=True) as descriptor:
            yield from _listed(root, folder, descriptor, pending)
    except FileNotFoundError:
        return


@contextmanager
def _replacement_noticed(path: str) -> Iterator[None]:
    """A folder that became a file or a link since it was seen is unknown, not absent."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_A_FOLDER:
            raise
        msg = "replaced while being listed"
        raise StoreUnavailableError(msg, key=path) from error


def _listed(root: Path, folder: _Folder, descriptor: int, pending: list[_Folder]) -> Iterator[Sighting]:
    head = f"{folder.path}/" if folder.path else ""
    inside = folder.above | {folder.parts}
    with os.scandir(descriptor) as entries:
        for entry in entries:
            path = head + entry.name
            if entry.is_file(follow_symlinks=False):
                status = _file_status(entry)
                if status is not None:
                    yield Sighting(path, status, folder.is_link)
            elif entry.is_symlink():
                yield from _at(root, _Folder(path, (), inside, is_link=True), pending)
            elif entry.is_dir(follow_symlinks=False):
                _descend(_Folder(path, (*folder.parts, entry.name), inside, folder.is_link), pending)
            else:
                yield Sighting(path, None, folder.is_link)


def _file_status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _at(root: Path, place: _Folder, pending: list[_Folder]) -> Iterator[Sighting]:
    """Resolve one name, a link or the place where the walk starts, and see what stands there."""
    try:
        parts = resolve(root, place.path)
    except PathEscapeError:
        yield Sighting(place.path, None, is_link=True)
        return
    is_link = place.is_link or "/".join(parts) != place.path
    status = _status(root, parts)
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        _descend(_Folder(place.path, parts, place.above, is_link), pending)
    else:
        yield Sighting(place.path, status if stat.S_ISREG(status.st_mode) else None, is_link)


def _status(root: Path, parts: tuple[str, ...]) -> os.stat_result | None:
    """Look at a resolved place; None if nothing is there."""
    try:
        with opened_folder(root, parts[:-1]) as folder:
            return os.stat(parts[-1] if parts else ".", dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.ENOENT or error.errno in _NOT_A_FOLDER:
            return None
        raise


def _descend(folder: _Folder, pending: list[_Folder]) -> None:
    if folder.parts not in folder.above:
        pending.append(folder)


def _require_bounded(folder: _Folder, num_folders: int) -> None:
    if len(folder.above) > MAX_DEPTH:
        msg = f"folders nested deeper than {MAX_DEPTH}: {folder.path}"
        raise LimitExceededError(msg)
    if num_folders > MAX_FOLDERS:
        msg = f"more than {MAX_FOLDERS} folders"
        raise LimitExceededError(msg)
