"""Reading the pointers of a folder: small files, and links to a step's folder."""

from collections.abc import Iterator
from typing import Final

from ckptguard.errors import LimitExceededError, ObjectNotFoundError
from ckptguard.formats.folder_tree import FolderTree, join
from ckptguard.formats.parts import linked_sibling
from ckptguard.formats.pointers import POINTER_NAMES, Pointer, parse_pointer
from ckptguard.storage.protocol import Store, read_whole

_MAX_POINTER_BYTES: Final = 4096


def read_pointers(store: Store, tree: FolderTree, folder: str) -> tuple[Pointer, ...]:
    """Read every pointer that stands directly in a folder.

    Raises:
        StoreError: The store did not deliver.
    """
    return tuple(_read(store, tree, folder))


def _read(store: Store, tree: FolderTree, folder: str) -> Iterator[Pointer]:
    for name in POINTER_NAMES:
        path = join(folder, name)
        if path in tree.listing.files:
            try:
                raw = read_whole(store, tree.listing.in_store(path), max_bytes=_MAX_POINTER_BYTES)
            except LimitExceededError:
                yield Pointer(path=path, text=None)
            except ObjectNotFoundError:  # being replaced at this moment
                continue
            else:
                yield Pointer(path=path, text=parse_pointer(raw))
        elif name in tree.children.get(folder, ()) and (target := linked_sibling(tree, path)):
            yield Pointer(path=path, text=target)
