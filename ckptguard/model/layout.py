"""What a checkpoint says it consists of: files, items, tensors, slices.

A layout is what an adapter (`ckptguard.formats`) reads from metadata alone. It is
a claim, held by the checks against the listing and the bytes. `Item`, `Slice` and
`Tensor` are NamedTuples, not dataclasses: the largest models have millions, and a
tuple is built in a quarter to half of the time (docs/adr/0006).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from ckptguard.model.checksum import Checksum
from ckptguard.model.finding import Finding


class ItemKind(StrEnum):
    """What an item holds."""

    TENSOR = "tensor"
    BYTES = "bytes"  # a pickled object


class Encoding(StrEnum):
    """How a shard's bytes are laid out."""

    TORCH_ZIP_ITEMS = "torch_zip_items"  # DCP: one small torch.save zip per item
    SAFETENSORS = "safetensors"  # header, then raw tensors
    TORCH_SAVE = "torch_save"  # the whole file is one torch.save zip
    RAW = "raw"  # bare tensors, where a manifest of the format says that they lie
    ZARR_CHUNKS = "zarr_chunks"  # chunks of Zarr arrays, each encoded by its array's codec
    OPAQUE = "opaque"  # nothing inside is understood; only whole-file checksums apply


BARE_ENCODINGS: Final = frozenset({Encoding.SAFETENSORS, Encoding.RAW})
"""Their items are the elements themselves, contiguous, without anything that checks them."""


class Slice(NamedTuple):
    """A rectangular part of one tensor ("chunk" in DCP).

    Args:
        offsets: First element in each dimension of the whole tensor.
        sizes: Elements in each dimension; any may be 0.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class Item(NamedTuple):
    """One entry's extent in a shard, half-open `[offset, offset + length_bytes)`.

    Args:
        fqn: Name of the tensor or object.
        kind: Tensor or pickled object.
        offset: First byte in the shard.
        length_bytes: Bytes in the shard.
        dtype: torch's name without prefix (`bfloat16`); None for objects.
        slice: The part of the tensor held here; None for objects.
        transforms: Stream transforms applied when written, as torch names them (`stream.zstd/1`).
    """

    fqn: str
    kind: ItemKind
    offset: int
    length_bytes: int
    dtype: str | None = None
    slice: Slice | None = None
    transforms: tuple[str, ...] = ()


class Tensor(NamedTuple):
    """One tensor as the metadata declares it.

    Args:
        fqn: Name.
        dtype: torch's name without prefix.
        shape: Whole shape, in elements, before sharding.
        slices: Parts that the metadata lists, in its order.
    """

    fqn: str
    dtype: str
    shape: tuple[int, ...]
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One stored file that holds items.

    Args:
        path: Relative to the checkpoint's root, `/`-separated.
        encoding: How to read it.
        items: Sorted by offset.
        min_length_bytes: The metadata refers to bytes up to here.
        exact_length_bytes: The format fixes the length; None where it only bounds it.
    """

    path: str
    encoding: Encoding
    items: tuple[Item, ...]
    min_length_bytes: int
    exact_length_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFile:
    """A metadata file as it was read: small, whole, hashed."""

    path: str
    length_bytes: int
    checksum: Checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One part of a checkpoint, as its metadata describes it.

    Args:
        format: Adapter's name, e.g. `dcp`, `safetensors`, `torch_save`.
        part: Folder of this part relative to the checkpoint's root; "" for the root itself.
        metadata_files: Those that were read to build this.
        shards: Files that hold items, sorted by path; each path once.
        tensors: Declared tensors; sorted by FQN.
        objects: FQNs of declared pickled objects.
        findings: What reading the metadata itself turned up.
        stock_globals: `module.name` of every class that the stock reader would import
            to open the metadata.
        stock_reader_gap: Why torch's stock FileSystemReader cannot open this; None if it can.
        is_rank_local: Metadata covers one rank only (`__R.metadata`): slices of other
            ranks are not holes.
        save_id: torch's `storage_meta.save_id`.
        sidecars: Other files that belong to the part (`common.pt`, `config.json`).
        is_companion: What a trainer keeps beside the parts of a save (schedulers, random states). No load
            of those parts opens it and no manifest of theirs lists it, so it lowers neither the assurance
            nor the provenance of the whole; its bytes are proven, and missed, like any others.
        missing_items: (fqn, slice or None) that the metadata declares without a home in any shard.
        orphan_items: Items stored for which no tensor or object is declared.
    """

    format: str
    part: str = ""
    metadata_files: tuple[MetadataFile, ...] = ()
    shards: tuple[Shard, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    objects: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    stock_globals: frozenset[str] = frozenset()
    stock_reader_gap: str | None = None
    is_rank_local: bool = False
    save_id: str | None = None
    sidecars: tuple[str, ...] = ()
    is_companion: bool = False
    missing_items: tuple[tuple[str, Slice | None], ...] = ()
    orphan_items: tuple[Item, ...] = ()
    notes: tuple[str, ...] = field(default=())
