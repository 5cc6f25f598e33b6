"""The torchsnapshot adapter: a folder with `.snapshot_metadata`, which rank 0 writes last.

Tensors lie bare in files, several in one where they were batched; objects, and tensors
that cannot be viewed as bytes, are whole torch.save files with CRC-32s. Bare bytes have no
checksum: without a manifest their content is never more than read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ckptguard.formats.dcp_findings import not_opened
from ckptguard.formats.metadata_files import empty, not_read, parse_json, read_file
from ckptguard.formats.torchsnapshot_manifest import RAW, TORCH_SAVE, Blob, Snapshot, Stored, read_snapshot
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, MetadataFile, Shard, Slice, Tensor
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

FORMAT: Final = "torchsnapshot"
METADATA: Final = ".snapshot_metadata"
STOCK_READER_GAP: Final = "a torchsnapshot: torch's FileSystemReader reads .distcp files; use torchsnapshot"
_OLD_YAML: Final = (b"version:", b"manifest:", b"world_size:")
_DERIVED_SHAPES: Final = (
    "the shape of sharded tensors is that of their shards: torchsnapshot states none, so that"
    " the loss of outermost shards from the metadata would go unseen"
)


class _Use(NamedTuple):
    """An item, and what is known of its bytes."""

    fqn: str
    blob: Blob
    dtype: str | None = None
    part: Slice | None = None


class TorchsnapshotAdapter:
    """The format `torchsnapshot`."""

    name = FORMAT

    def recognises(self, listing: Listing) -> bool:
        """Say whether the snapshot's metadata stands directly in this folder."""
        return METADATA in listing.files or METADATA in listing.escapes

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Read the metadata.

        Returns:
            One layout. A YAML text (torchsnapshot before October 2022) is not read: UNKNOWN.

        Raises:
            StoreError: The store did not deliver.
            LimitExceededError: Beyond `limits`.
        """
        if METADATA not in listing.files:
            return (Layout(format=FORMAT, findings=(not_opened(METADATA),)),)
        data, file = read_file(store, listing, METADATA, limits)
        if data.lstrip().startswith(_OLD_YAML):
            finding = not_read(METADATA, "is YAML, as torchsnapshot wrote before 0.1.0", observed="YAML")
            return (Layout(format=FORMAT, metadata_files=(file,), findings=(finding,)),)
        value, faults = parse_json(data, file=METADATA) if data else (None, (empty(METADATA),))
        if value is None:
            return (Layout(format=FORMAT, metadata_files=(file,), findings=faults),)
        return (_layout(read_snapshot(value, file=METADATA, limits=limits), file, listing),)


ADAPTER: Final = TorchsnapshotAdapter()


def _layout(snapshot: Snapshot, file: MetadataFile, listing: Listing) -> Layout:
    by_file: dict[str, list[_Use]] = {}
    for use in _uses(snapshot):
        by_file.setdefault(use.blob.location, []).append(use)
    tensors = tuple(_tensor(fqn, snapshot.tensors[fqn]) for fqn in sorted(snapshot.tensors))
    has_derived = any(stored.shape is None for stored in snapshot.tensors.values())
    return Layout(
        format=FORMAT,
        metadata_files=(file,),
        shards=tuple(_shard(path, by_file[path], listing) for path in sorted(by_file)),
        tensors=tensors,
        objects=tuple(sorted(snapshot.objects)),
        findings=snapshot.findings + tuple(_dtype_conflicts(snapshot.tensors)),
        stock_reader_gap=STOCK_READER_GAP,
        notes=(_DERIVED_SHAPES,) if has_derived else (),
    )


def _uses(snapshot: Snapshot) -> Iterator[_Use]:
    for fqn, stored in snapshot.tensors.items():
        for piece in stored.pieces:
            yield _Use(fqn, piece.blob, piece.dtype, piece.part)
    for fqn, blob in snapshot.objects.items():
        yield _Use(fqn, blob)


def _tensor(fqn: str, stored: Stored) -> Tensor:
    slices = tuple(piece.part for piece in stored.pieces)
    dtype = stored.pieces[0].dtype if stored.pieces else ""
    return Tensor(fqn, dtype, stored.shape if stored.shape is not None else _reach(slices), slices)


def _reach(slices: Sequence[Slice]) -> tuple[int, ...]:
    """Return the shape that reaches as far as the furthest part."""
    ends = [tuple(map(sum, zip(part.offsets, part.sizes, strict=False))) for part in slices]
    dims = max((len(end) for end in ends), default=0)
    return tuple(max(end[axis] for end in ends if axis < len(end)) for axis in range(dims))


def _dtype_conflicts(tensors: Mapping[str, Stored]) -> Iterator[Finding]:
    for fqn, stored in tensors.items():
        dtypes = {piece.dtype for piece in stored.pieces}
        if len(dtypes) > 1:
            yield Finding(
                code=FindingCode.DTYPE_MISMATCH,
                check=CheckName.COVERAGE,
                severity=Severity.ERROR,
                basis=Basis.DAMAGE,
                message=f"{METADATA}: shards of {fqn} have different dtypes: {', '.join(sorted(dtypes))}",
                file=METADATA,
                fqn=fqn,
            )
            return  # one is enough: a hostile file could make millions


def _shard(path: str, uses: Sequence[_Use], listing: Listing) -> Shard:
    stat = listing.files.get(path)
    serializers = {use.blob.serializer for use in uses}
    least = max((use.blob.end or 1 for use in uses), default=1)
    if serializers == {RAW} and all(use.dtype is not None and use.blob.end is not None for use in uses):
        items = sorted(map(_raw_item, uses), key=lambda item: (item.offset, item.fqn))
        ends = [item.offset + item.length_bytes for item in items]
        is_exact = all(use.blob.is_whole_file for use in uses)
        return Shard(
            path=path,
            encoding=Encoding.RAW,
            items=tuple(items),
            min_length_bytes=max(ends),
            exact_length_bytes=max(ends) if is_exact else None,
        )
    if serializers == {TORCH_SAVE} and len(uses) == 1 and uses[0].blob.end is None:
        length = stat.length_bytes if stat else 0
        whole = Item(uses[0].fqn, ItemKind.BYTES, 0, length)
        least = max(length, 1)
        return Shard(path=path, encoding=Encoding.TORCH_SAVE, items=(whole,), min_length_bytes=least)
    return Shard(path=path, encoding=Encoding.OPAQUE, items=(), min_length_bytes=least)


def _raw_item(use: _Use) -> Item:
    start, end = use.blob.start, use.blob.end or 0
    return Item(use.fqn, ItemKind.TENSOR, start, end - start, use.dtype, use.part)
