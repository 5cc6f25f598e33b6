"""Open again, in another process, the checkpoint that discovery found."""

from ckptguard.formats.folder_tree import index_folders
from ckptguard.formats.parts import find_parts, open_parts
from ckptguard.formats.registry import adapters
from ckptguard.model.layout import Layout
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store


def open_checkpoint(store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
    """Read the metadata of all parts of one checkpoint.

    Guarantees: given the listing of a `Checkpoint.root` and the same bytes, the layouts that
    `discover` returned, but for findings about names beside it.

    Args:
        store: Where it lies; a `CachingStore` with what was read before reads nothing twice.
        listing: Of the checkpoint's root.
        limits: Bounds on metadata.

    Raises:
        StoreError: The store did not deliver.
        LimitExceededError: Beyond `limits`.
    """
    tree = index_folders(listing)
    return open_parts(store, tree, "", find_parts(tree, "", adapters()), limits=limits)
