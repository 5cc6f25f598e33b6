"""Check 3, items: has every declared slice an item, every item a home, and room for its elements?"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod
from typing import Final

from ckptguard.checks.phrases import item_in_words
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard, Slice

MIN_ZIP_BYTES: Final = 22
"""Length of an end-of-central-directory record alone (PKWARE APPNOTE 4.3.16)."""

ITEMSIZE_BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""Bytes of one element. Quantised and sub-byte types are absent: nothing is claimed about them."""

_error = partial(Finding, check=CheckName.COVERAGE, severity=Severity.ERROR, basis=Basis.DAMAGE)
_doubt = partial(Finding, check=CheckName.COVERAGE, severity=Severity.UNKNOWN)
_warning = partial(Finding, check=CheckName.COVERAGE, severity=Severity.WARNING)


def check_items(layout: Layout) -> Iterator[Finding]:
    """Yield every mismatch between what is declared and what is stored, from metadata alone."""
    yield from _missing_items(layout)
    yield from _orphan_items(layout)
    yield from _stored_twice(layout)
    zips = (shard for shard in layout.shards if shard.encoding is Encoding.TORCH_ZIP_ITEMS)
    yield from chain.from_iterable(chain(_overlaps(shard), _too_short(shard)) for shard in zips)


def placed(finding: Finding, file: str, item: Item) -> Finding:
    """Return a finding with the place of an item as its evidence."""
    part = item.slice
    return replace(
        finding,
        file=file,
        fqn=item.fqn,
        offset=item.offset,
        length_bytes=item.length_bytes,
        slice_offsets=part.offsets if part else None,
        slice_sizes=part.sizes if part else None,
    )


def _missing_items(layout: Layout) -> Iterator[Finding]:
    if not layout.missing_items:
        return
    shapes = {tensor.fqn: tensor.shape for tensor in layout.tensors}
    for fqn, part in layout.missing_items:
        build = _warning if part is not None and _is_never_read(part, shapes.get(fqn, ())) else _error
        place = f" slice at {list(part.offsets)} of sizes {list(part.sizes)}" if part else ""
        yield build(
            code=FindingCode.MISSING_ITEM,
            message=f"{fqn}{place} is declared, and the metadata names no place where it is stored",
            fqn=fqn,
            slice_offsets=part.offsets if part else None,
            slice_sizes=part.sizes if part else None,
            expected="a file, an offset and a length",
            observed="nothing",
        )


def _is_never_read(part: Slice, shape: tuple[int, ...]) -> bool:
    """Say whether no load asks for this slice: it is empty, and stands at an edge of its tensor.

    torch asks for what overlaps, and an empty slice overlaps nothing unless it stands
    strictly inside (`_check_shard_metadata_pair_overlap`, torch 2.13).
    """
    return any(
        size == 0 and offset in (0, dim)
        for offset, size, dim in zip(part.offsets, part.sizes, shape, strict=False)
    )


def _orphan_items(layout: Layout) -> Iterator[Finding]:
    """Tell of items that nothing declares: an error.

    Writers take declarations and items from one plan (`FileSystemWriter.finish`, torch
    2.13), so one of the two lists was changed afterwards. Stock raises `Missing key` where
    the declaration was lost, and nothing tells that from an entry that was added.
    """
    if not layout.orphan_items:
        return
    declared = {tensor.fqn for tensor in layout.tensors}.union(layout.objects)
    # By identity: adapters put the same value into both lists, and hashes of a hostile one may collide.
    orphans = {id(item) for item in layout.orphan_items}
    homes = {id(item): shard.path for shard, item in _placed_items(layout) if id(item) in orphans}
    for item in layout.orphan_items:
        is_declared = item.fqn in declared
        why = "which is not among its declared slices" if is_declared else "a name that is not declared"
        finding = _error(
            code=FindingCode.ORPHAN_ITEM,
            message=f"an item is stored for {item_in_words(item)}, {why}",
            expected="a declared slice for every item",
            observed="none",
        )
        yield replace(placed(finding, "", item), file=homes.get(id(item)))


def _stored_twice(layout: Layout) -> Iterator[Finding]:
    """Warn of one slice stored in two places: a load reads one of them."""
    num_items = sum(len(shard.items) for shard in layout.shards)
    if len({_corner(item) for _, item in _placed_items(layout)}) == num_items:
        return
    homes: dict[tuple[str, str], str] = {}
    for shard, item in _placed_items(layout):
        here = f"{shard.path} at {item.offset}"
        first = homes.setdefault(_corner(item), here)
        if first != here:
            yield _twice(shard, item, first)


def _corner(item: Item) -> tuple[str, str]:
    """Return what torch looks an item up by; as text, because hashes of tuples can be made to collide."""
    return (item.fqn, str(item.slice.offsets) if item.slice else "")


def _placed_items(layout: Layout) -> Iterator[tuple[Shard, Item]]:
    for shard in layout.shards:
        for item in shard.items:
            yield shard, item


def _twice(shard: Shard, item: Item, first: str) -> Finding:
    finding = _warning(
        code=FindingCode.ITEM_OVERLAP,
        message=f"{item_in_words(item)} is stored twice, in {first} and in {shard.path}"
        f" at {item.offset}; a load reads one of them",
        expected="stored once",
        observed="stored twice",
    )
    return placed(finding, shard.path, item)


def _overlaps(shard: Shard) -> Iterator[Finding]:
    """Warn of items that share bytes; stock torch loads them, right or wrong by luck (cases.md §3)."""
    last: Item | None = None
    for item in shard.items:
        if not item.length_bytes:
            continue
        if last is not None and item.offset < last.offset + last.length_bytes:
            yield _overlap(shard, last, item)
        if last is None or item.offset + item.length_bytes > last.offset + last.length_bytes:
            last = item


def _overlap(shard: Shard, last: Item, item: Item) -> Finding:
    is_same = (last.offset, last.length_bytes) == (item.offset, item.length_bytes)
    how = "are the same bytes" if is_same else "share bytes"
    finding = _warning(
        code=FindingCode.ITEM_OVERLAP,
        message=f"{item_in_words(last)} and {item_in_words(item)} {how} of {shard.path}"
        f" at {item.offset}; writers store each item by itself",
        expected=f"an offset of at least {last.offset + last.length_bytes}",
        observed=f"offset {item.offset}",
    )
    return placed(finding, shard.path, item)


def _too_short(shard: Shard) -> Iterator[Finding]:
    """Tell of extents too short to hold what they should.

    No zip is shorter than its end record: an error. Shorter than the elements is only
    in doubt, because a tensor subclass may store fewer bytes than its declared dtype
    (float8 under a bfloat16 name); the content check reads what is stored.
    """
    for item in shard.items:
        if item.transforms:
            continue
        if item.length_bytes < MIN_ZIP_BYTES:
            yield _short(shard, item, MIN_ZIP_BYTES, is_error=True)
        elif item.kind is ItemKind.TENSOR and item.slice is not None and item.dtype is not None:
            needed = prod(item.slice.sizes) * ITEMSIZE_BYTES.get(item.dtype, 0)
            if item.length_bytes < needed:
                yield _short(shard, item, needed, is_error=False)


def _short(shard: Shard, item: Item, needed: int, *, is_error: bool) -> Finding:
    finding = (_error if is_error else _doubt)(
        code=FindingCode.ITEM_OUT_OF_BOUNDS,
        message=f"{item_in_words(item)} has {item.length_bytes} bytes in {shard.path} at {item.offset},"
        f" and needs at least {needed}",
        expected=f"at least {needed} bytes",
        observed=f"{item.length_bytes} bytes",
    )
    return placed(finding, shard.path, item)
