"""torch.save files beside the shards of a DCP part, which its trainer loads with it.

Megatron reads `common.pt` and Lightning `meta.pt` in every load; a launcher that resumes
into a damaged one dies, or trains on with wrong state. Their zips carry CRC-32s like
those of the shards. Neither is a shard: torch's own loader never opens them, and
Lightning writes its own after the commit, so times and manifests of the save say nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from ckptguard.formats.dcp import SIDECARS
from ckptguard.formats.parts import not_opened
from ckptguard.formats.torch_save import TORCH_SUFFIXES, sniff_torch_zip
from ckptguard.model.finding import Finding
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard
from ckptguard.operations.look import Look
from ckptguard.storage.protocol import Store


def sidecar_zips(seen: Look, store: Store, *, required: Sequence[str]) -> tuple[Shard, ...]:
    """Describe the sidecars that are to be verified like shards.

    A file that its name promises to be a torch.save zip is held to be one, unless it
    begins like another kind of torch.save file, in which nothing can be proven.

    Args:
        seen: The checkpoint.
        store: Asked for the first bytes of each.
        required: Files of the profile; those are verified too.

    Raises:
        StoreError: The store did not deliver.
    """
    return tuple(
        Shard(path=path, encoding=Encoding.TORCH_SAVE, items=(_whole(seen, path),), min_length_bytes=0)
        for path in sorted(set(_wanted(seen, required)))
        if sniff_torch_zip(store, seen.listing, path)
    )


def hidden_sidecars(seen: Look) -> tuple[Finding, ...]:
    """Say which sidecars are links out of the root: what they lead to is not known."""
    parts = {layout.part for layout in seen.checkpoint.layouts if layout.format == "dcp"}
    names = (path.rpartition("/") for path in seen.listing.escapes)
    return tuple(
        not_opened(f"{folder}{slash}{name}")
        for folder, slash, name in names
        if folder in parts and name in SIDECARS
    )


def files_of(layouts: Iterable[Layout], names: Iterable[str]) -> frozenset[str]:
    """Return the files that stand in the folder of a part: what a profile may name."""
    parts = {layout.part for layout in layouts}
    return frozenset(path for path in names if path.rpartition("/")[0] in parts)


def _wanted(seen: Look, required: Sequence[str]) -> Iterator[str]:
    layouts = seen.checkpoint.layouts
    shards = {shard.path for layout in layouts for shard in layout.shards}
    named = (path for layout in layouts if layout.format == "dcp" for path in layout.sidecars)
    for path in (*named, *required):
        is_torch = PurePosixPath(path).suffix in TORCH_SUFFIXES
        if is_torch and path in seen.listing.files and path not in shards:
            yield path


def _whole(seen: Look, path: str) -> Item:
    return Item(path, ItemKind.BYTES, 0, seen.listing.files[path].length_bytes)
