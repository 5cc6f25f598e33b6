"""DCP shards that are safetensors files (`FileSystemWriter(serialization_format=SAFETENSORS)`).

Their `.metadata` gives every item the offset 0 and the length of its bare elements, which
is no range of the file (facts.md §b). Where the items lie is in the file's own header.

Source: `_write_files_from_queue` and `_write_item`, torch 2.13, checkpoint/filesystem.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Final

from ckptguard.formats import safetensors_faults
from ckptguard.formats.dcp_findings import FindingBag
from ckptguard.formats.safetensors_header import HeaderTensor, read_header
from ckptguard.formats.torch_dtypes import ITEMSIZES
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Shard
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

STOCK_READER_GAP: Final = "items lie in safetensors files; stock FileSystemReader reads torch.save items"


def is_safetensors(shard: Shard) -> bool:
    """Say whether the extents are those of such a file: all at 0, and no byte longer than the elements.

    No torch.save item is that short, so that one look at the metadata decides.
    """
    if not shard.items or shard.items[-1].offset != 0:
        return False
    return all(item.length_bytes == _bare_bytes(item) for item in shard.items)


def is_behind_objects(shard: Shard) -> bool:
    """Say whether the extents are those of a safetensors file that was written behind pickled objects.

    The objects of a shard come first; all its tensors are then said to lie where the last object ends, each
    no longer than its bare elements. No torch.save item is that short.
    """
    tensors = [item for item in shard.items if item.kind is ItemKind.TENSOR]
    starts = {item.offset for item in tensors}
    if len(starts) != 1 or len(tensors) == len(shard.items) or 0 in starts:
        return False
    return all(item.length_bytes == _bare_bytes(item) and not item.transforms for item in tensors)


def unreadable_behind_objects(shard: Shard, listing: Listing, bag: FindingBag) -> Shard:
    """Condemn a shard of which no reader of torch finds the safetensors header; return it without items.

    Measured, torch 2.13 and safetensors 0.8: `FileSystemReader` raises UnpicklingError at the first tensor,
    and `safe_open`, which Hugging Face's reader calls, SafetensorError for the header, which it looks for
    at the start of the file. The bytes themselves are what was saved.
    """
    bare = replace(shard, encoding=Encoding.SAFETENSORS, items=(), min_length_bytes=0)
    if shard.path not in listing.files:
        return bare
    start = max(item.offset for item in shard.items)
    message = (
        f"{start} bytes of pickled objects stand before its safetensors header, which every reader expects"
        " at the start: its tensors cannot be loaded, though no byte was altered; stock writes such shards"
        " of a state that holds objects: save it with SerializationFormat.TORCH_SAVE"
    )
    bag.add(
        safetensors_faults.malformed(
            shard.path,
            message,
            offset=0,
            expected="a safetensors header at the start of the file",
            observed=f"one at byte {start}",
        )
    )
    return replace(bare, min_length_bytes=listing.files[shard.path].length_bytes)


def _bare_bytes(item: Item) -> int | None:
    if item.kind is not ItemKind.TENSOR or item.slice is None or item.dtype not in ITEMSIZES:
        return None
    return prod(item.slice.sizes) * ITEMSIZES[item.dtype]


def place_in_file(shard: Shard, store: Store, listing: Listing, limits: Limits, bag: FindingBag) -> Shard:
    """Return the shard with its items where the file's header says they lie.

    Raises:
        StoreError: The store did not deliver the header.
    """
    unplaced = replace(shard, encoding=Encoding.SAFETENSORS, items=(), min_length_bytes=0)
    if shard.path not in listing.files:
        return unplaced
    reading = read_header(store, listing, shard.path, limits)
    for finding in reading.findings:
        bag.add(finding)
    if reading.header is None:
        return unplaced
    stored = {tensor.fqn: tensor for tensor in reading.header.tensors}
    # One name, one tensor: of two slices with one name torch's dict kept the last.
    last = {item.fqn: item for item in shard.items}
    for item in shard.items:
        if last[item.fqn] is not item:
            bag.add(
                _differs(FindingCode.MISSING_ITEM, shard.path, item, "two slices of this name", "the last")
            )
    items = [
        placed for item in last.values() if (placed := _placed(shard.path, item, stored, bag)) is not None
    ]
    return replace(
        unplaced,
        items=tuple(sorted(items, key=lambda item: (item.offset, item.length_bytes))),
        min_length_bytes=reading.header.length_bytes,
        exact_length_bytes=reading.header.length_bytes,
    )


def _placed(path: str, item: Item, stored: Mapping[str, HeaderTensor], bag: FindingBag) -> Item | None:
    tensor = stored.get(item.fqn)
    if tensor is None:
        bag.add(
            _differs(
                FindingCode.MISSING_ITEM, path, item, "a tensor of this name", "none in the file's header"
            )
        )
        return None
    sizes = item.slice.sizes if item.slice else ()
    if tensor.sizes != sizes:
        bag.add(_differs(FindingCode.SHAPE_MISMATCH, path, item, str(list(sizes)), str(list(tensor.sizes))))
    if tensor.dtype != item.dtype:
        bag.add(_differs(FindingCode.DTYPE_MISMATCH, path, item, str(item.dtype), tensor.dtype))
    return item._replace(offset=tensor.offset, length_bytes=tensor.length_bytes)


def _differs(code: FindingCode, path: str, item: Item, expected: str, observed: str) -> Finding:
    return Finding(
        code=code,
        check=CheckName.COVERAGE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"{item.fqn} in {path}: metadata says {expected}, the file says {observed}",
        file=path,
        fqn=item.fqn,
        slice_offsets=item.slice.offsets if item.slice else None,
        slice_sizes=item.slice.sizes if item.slice else None,
        expected=expected,
        observed=observed,
    )
