"""Which folder may be read from, when a user names only a path (design §10 Links)."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ckptguard.errors import ConfigError, LimitExceededError, ObjectNotFoundError
from ckptguard.storage.local import LocalStore
from ckptguard.storage.os_errors import translating_os_errors

MAX_LEVELS_UP = 3
MAX_LINKED_FOLDERS = 10_000


def resolve_local(path: str, *, root: Path | None = None) -> tuple[LocalStore, str]:
    """Return the store and the prefix that a local path means.

    Without `root`, it is the nearest folder above the checkpoint that holds the targets of
    all its links, at most three levels up, never `/`. Targets that no such folder holds do
    not widen it; they are the store's `escapes`. A hub cache (`snapshots/REV/model.safetensors
    -> ../../blobs/HASH`) so gets the model's own folder.

    Args:
        path: File or folder, absolute or relative to the working folder; links in it are resolved.
        root: The folder that may be read from; overrides the rule above.

    Raises:
        ObjectNotFoundError: Nothing stands at `path`.
        ConfigError: `path` is not inside `root`, or is `/`.
        AccessDeniedError, StoreUnavailableError: It could not be looked at.
        LimitExceededError: More than MAX_LINKED_FOLDERS links below it.
    """
    place = _place(path)
    above = _allowed_root(place) if root is None else Path(os.path.realpath(root))
    if not place.is_relative_to(above):
        msg = f"{place} is not inside the root {above}"
        raise ConfigError(msg)
    prefix = place.relative_to(above).as_posix()
    return LocalStore(above), "" if prefix == "." else prefix


def _place(path: str) -> Path:
    """Resolve a folder's links, and a file's except its own: the name says the format."""
    with translating_os_errors(path):
        named = Path(path).absolute()
        try:
            is_folder = named.resolve(strict=True).is_dir()
        except RuntimeError as error:  # a link loop, before Python 3.13
            msg = "a link loop"
            raise ObjectNotFoundError(msg, key=path) from error
    return named.resolve() if is_folder else named.parent.resolve() / named.name


def _allowed_root(place: Path) -> Path:
    anchor = Path(place.anchor)
    if place == anchor:
        msg = f"name a folder below {anchor}"
        raise ConfigError(msg)
    candidates = [folder for folder in place.parents[:MAX_LEVELS_UP] if folder != anchor]
    if not candidates:
        return place
    return _nearest_holder(candidates, _link_targets(place, within=candidates[-1]))


def _nearest_holder(candidates: list[Path], targets: Iterable[Path]) -> Path:
    """Return the first of `candidates`, nested, nearest first, that holds all targets that the last holds."""
    nearest = 0
    for target in targets:
        holders = (index for index, folder in enumerate(candidates) if target.is_relative_to(folder))
        nearest = max(nearest, next(holders, 0))
    return candidates[nearest]


def _link_targets(place: Path, *, within: Path) -> Iterator[Path]:
    """Yield where each link at or below `place` leads; enter linked folders `within`, each once."""
    if not place.is_dir():
        yield Path(os.path.realpath(place))
        return
    pending, seen = [place], {place}
    for _ in range(MAX_LINKED_FOLDERS):
        if not pending:
            return
        for link in _links_below(pending.pop()):
            target = Path(os.path.realpath(link))
            yield target
            if target.is_relative_to(within) and target not in seen and target.is_dir():
                seen.add(target)
                pending.append(target)
    msg = f"links to more than {MAX_LINKED_FOLDERS} folders"
    raise LimitExceededError(msg)


def _links_below(folder: Path) -> Iterator[str]:
    pending = [str(folder)]
    while pending:
        here = pending.pop()
        with translating_os_errors(here), suppress(FileNotFoundError), os.scandir(here) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
