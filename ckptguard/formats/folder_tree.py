"""The folders of a listing, indexed once: names only, nothing is read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

_LITTER_FOLDERS = frozenset(
    {"__pycache__", "lightning_logs", "log", "logs", "profiles", "runs", "tb", "tensorboard", "wandb"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTree:
    """Which files and folders stand in each folder of a listing.

    Links out of the root count as files here: what they are called says what they belong to.

    Args:
        listing: The whole.
        files: Names directly in each folder; folders without any are absent.
        children: Folders directly in each folder, sorted.
    """

    listing: Listing
    files: Mapping[str, tuple[str, ...]]
    children: Mapping[str, tuple[str, ...]]

    def shallow(self, folder: str) -> Listing:
        """Return the files directly in a folder as a listing, for questions about names."""
        stats = {name: self._stat(join(folder, name)) for name in self.files.get(folder, ())}
        return Listing(root=self.listing.in_store(folder) if folder else self.listing.root, files=stats)

    def folders_below(self, folder: str, *, max_depth: int) -> Iterator[str]:
        """Yield a folder and those below it, parents first, without litter (`.cache`, `logs`, …)."""
        yield folder
        if max_depth:
            for child in self.children.get(folder, ()):
                if not is_litter_folder(child):
                    yield from self.folders_below(join(folder, child), max_depth=max_depth - 1)

    def _stat(self, path: str) -> ObjectStat:
        return self.listing.files.get(path) or ObjectStat(path=path, length_bytes=0)


def index_folders(listing: Listing) -> FolderTree:
    """Index a listing.

    Cost: once over all paths.
    """
    files: dict[str, list[str]] = {}
    children: dict[str, set[str]] = {}
    for path in (*listing.files, *listing.escapes):
        folder, _, name = path.rpartition("/")
        if folder not in files:
            _add_ancestors(children, folder)
        files.setdefault(folder, []).append(name)
    return FolderTree(
        listing=listing,
        files={folder: tuple(sorted(names)) for folder, names in files.items()},
        children={folder: tuple(sorted(names)) for folder, names in children.items()},
    )


def is_litter_folder(name: str) -> bool:
    """Say whether a folder of this name never holds a part (`.cache`, `logs`, …)."""
    return name.startswith(".") or name in _LITTER_FOLDERS


def join(folder: str, name: str) -> str:
    """Return the path of a name in a folder; either may be ""."""
    return f"{folder}/{name}" if folder and name else folder or name


def _add_ancestors(children: dict[str, set[str]], folder: str) -> None:
    while folder:
        parent, _, name = folder.rpartition("/")
        siblings = children.setdefault(parent, set())
        if name in siblings:
            return
        siblings.add(name)
        folder = parent
