"""A listing: every object below one folder of a store, looked at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ckptguard.errors import LimitExceededError
from ckptguard.storage.protocol import ObjectStat, Store


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What stands below `root`; all paths are relative to it.

    Args:
        root: Folder in the store; "" for the store's own root.
        files: Every regular object by relative path.
        escapes: Links out of the store's root, and things that are not regular files.
    """

    root: str
    files: Mapping[str, ObjectStat]
    escapes: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Files directly in this folder, sorted."""
        return tuple(sorted(path for path in self.files if "/" not in path))

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Folders directly in this folder, sorted."""
        return tuple(sorted({path.split("/", 1)[0] for path in self.files if "/" in path}))

    def below(self, folder: str) -> "Listing":
        """Return the listing of a folder in this one; "" returns this one itself."""
        if not folder:
            return self
        head = f"{folder}/"
        return Listing(
            root=f"{self.root}/{folder}" if self.root else folder,
            files={
                path.removeprefix(head): stat for path, stat in self.files.items() if path.startswith(head)
            },
            escapes=tuple(path.removeprefix(head) for path in self.escapes if path.startswith(head)),
        )

    def in_store(self, path: str) -> str:
        """Return the store-relative path of a path of this listing."""
        return f"{self.root}/{path}" if self.root else path


def list_folder(store: Store, root: str, *, max_files: int) -> Listing:
    """List a folder, bounded.

    Raises:
        LimitExceededError: More than `max_files` objects.
        StoreError: As `Store.walk`.
    """
    files = {stat.path: stat for stat in _bounded(store.walk(root), max_files)}
    head = f"{root}/" if root else ""
    return Listing(
        root=root,
        files={path.removeprefix(head): stat for path, stat in files.items()},
        escapes=tuple(sorted(path.removeprefix(head) for path in store.escapes(root))),
    )


def _bounded(stats: Iterator[ObjectStat], max_files: int) -> Iterator[ObjectStat]:
    for count, stat in enumerate(stats, start=1):
        if count > max_files:
            msg = f"more than {max_files} files"
            raise LimitExceededError(msg)
        yield stat
