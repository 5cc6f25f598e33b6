"""Where damage can be aimed: the shards of any checkpoint, and the bytes of each tensor in them.

Uses the product's own adapters, so that a tensor is found by its name in every format
that can be read, and never unpickles anything.
"""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptguard.errors import FormatError
from ckptguard.formats.registry import adapters
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.local import LocalStore
from ckptguard.testing.zip_map import Area, Region, map_zip

_MAX_FILES: Final = 1_000_000
_METADATA_NAMES: Final = (".metadata", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Bytes of one file.

    Args:
        file: Relative to the checkpoint's root.
        offset: First byte.
        length_bytes: Bytes; at least 1.
        fqn: Tensor whose payload they are, where the format names it.
    """

    file: str
    offset: int
    length_bytes: int
    fqn: str | None = None


def find_layouts(folder: Path) -> tuple[Layout, ...]:
    """Return what the metadata of every part at the root and below says."""
    return tuple(layout for _, layout in _layouts(folder, _listing(folder)))


def find_shards(folder: Path) -> tuple[str, ...]:
    """Return the files that hold tensors, sorted; where no format is recognised, all that hold bytes."""
    listing = _listing(folder)
    known = {path for path, _ in _shards(folder, listing) if path in listing.files}
    holding = {path for path in known if listing.files[path].length_bytes}
    if not holding:
        holding = {path for path, stat in listing.files.items() if stat.length_bytes}
    return tuple(sorted(path for path in holding if not path.endswith(_METADATA_NAMES)))


def find_payloads(folder: Path, *, fqn: str | None = None) -> Iterator[Extent]:
    """Yield the payload of every stored slice, in the order of the files.

    Args:
        folder: Root of the checkpoint.
        fqn: Only this tensor's.
    """
    listing = _listing(folder)
    for path, shard in _shards(folder, listing):
        if path not in listing.files:
            continue
        if shard.encoding is Encoding.TORCH_SAVE:
            yield from _file_payloads(folder, path, shard, fqn)
            continue
        for item in shard.items:
            if item.kind is ItemKind.TENSOR and fqn in {None, item.fqn}:
                yield from _item_payloads(folder, path, shard, item)


def _listing(folder: Path) -> Listing:
    return list_folder(LocalStore(folder), "", max_files=_MAX_FILES)


def _shards(folder: Path, listing: Listing) -> Iterator[tuple[str, Shard]]:
    """Yield every shard with its path from the root, for the parts at the root and below."""
    for prefix, layout in _layouts(folder, listing):
        for shard in layout.shards:
            yield f"{prefix}{shard.path}", shard


def _layouts(folder: Path, listing: Listing, prefix: str = "") -> Iterator[tuple[str, Layout]]:
    below = listing.below(prefix.rstrip("/"))
    for adapter in adapters():
        if adapter.recognises(below):
            layouts = adapter.open(LocalStore(folder), below, Limits())
            yield from ((prefix, layout) for layout in layouts)
            return
    for name in below.folders:
        yield from _layouts(folder, listing, f"{prefix}{name}/")


def _item_payloads(folder: Path, path: str, shard: Shard, item: Item) -> Iterator[Extent]:
    if shard.encoding is not Encoding.TORCH_ZIP_ITEMS or item.transforms:
        if item.length_bytes:
            yield Extent(file=path, offset=item.offset, length_bytes=item.length_bytes, fqn=item.fqn)
        return
    with (folder / path).open("rb") as stream:
        stream.seek(item.offset)
        data = stream.read(item.length_bytes)
    for region in _payload_regions(data):
        yield Extent(
            file=path,
            offset=item.offset + region.start,
            length_bytes=region.end - region.start,
            fqn=item.fqn,
        )


def _file_payloads(folder: Path, path: str, shard: Shard, fqn: str | None) -> Iterator[Extent]:
    """Yield the storages of a `torch.save` file; they carry names only where the layout has them."""
    named = [item for item in shard.items if item.kind is ItemKind.TENSOR and item.fqn == fqn]
    if fqn is not None and not named:
        return
    for region in _payload_regions((folder / path).read_bytes()):
        yield Extent(file=path, offset=region.start, length_bytes=region.end - region.start, fqn=fqn)


def _payload_regions(data: bytes) -> Iterator[Region]:
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return
    try:
        regions = map_zip(data)
    except zipfile.BadZipFile as error:
        msg = f"cannot aim inside a zip that is already damaged: {error}"
        raise FormatError(msg) from error
    yield from (region for region in regions if region.area is Area.PAYLOAD)
