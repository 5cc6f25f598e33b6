"""Checkpoints of torch.distributed.checkpoint, as its FileSystemWriter and relatives leave them."""

from typing import Final

from ckptguard.formats.dcp_commit import (
    METADATA,
    METADATA_TMP,
    RANK_LOCAL,
    RANK_LOCAL_TMP,
    SHARD_SUFFIX,
    not_committed,
)
from ckptguard.formats.dcp_findings import FindingBag, not_opened
from ckptguard.formats.dcp_metadata import MetadataTables, read_metadata
from ckptguard.formats.dcp_safetensors import (
    STOCK_READER_GAP,
    is_behind_objects,
    is_safetensors,
    place_in_file,
    unreadable_behind_objects,
)
from ckptguard.formats.megatron import check_megatron
from ckptguard.formats.metadata_files import read_bounded
from ckptguard.model.layout import Encoding, Layout, Shard
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

_OLMO_STORAGE_INFO: Final = "olmo_core.distributed.checkpoint.filesystem._StorageInfo"
_OLMO_GAP: Final = (
    "items are described by olmo_core's _StorageInfo, which lacks `transform_descriptors`:"
    " stock FileSystemReader fails on it even with olmo_core installed"
)
SIDECARS: Final = ("common.pt", "meta.pt", "metadata.json")
"""Megatron-core's, and Lightning's `meta.pt`."""
_PRE_2_4_NOTE: Final = (
    "lists such as param_groups are stored as one object each: key layout of torch before 2.4,"
    " which later versions do not match by themselves"
)


class DcpAdapter:
    """The format `dcp`: a folder with `.metadata` (or `__R.metadata`) and `.distcp` shards."""

    name = "dcp"

    def recognises(self, listing: Listing) -> bool:
        """Say whether this folder holds, or was about to hold, such a checkpoint."""
        return any(
            name in (METADATA, METADATA_TMP)
            or name.endswith(SHARD_SUFFIX)
            or RANK_LOCAL.fullmatch(name)
            or RANK_LOCAL_TMP.fullmatch(name)
            for name in (*listing.names, *listing.escapes)
            if "/" not in name
        )

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Read the metadata.

        Returns:
            One layout; one per rank where metadata is rank-local (torch's
            `use_collectives=False`). Paths are relative to `listing.root`.

        Raises:
            StoreError: The store did not answer.
            LimitExceededError: Beyond `limits`.
        """
        if METADATA in listing.files:
            return (_open_one(store, listing, limits, METADATA),)
        if METADATA in listing.escapes:
            return (Layout(format=self.name, findings=(not_opened(METADATA),)),)
        ranks = sorted(
            (int(match[1]), name) for name in listing.names if (match := RANK_LOCAL.fullmatch(name))
        )
        if ranks:
            return tuple(_open_one(store, listing, limits, name, is_rank_local=True) for _, name in ranks)
        return (Layout(format=self.name, findings=not_committed(store, listing, limits)),)


def _open_one(
    store: Store, listing: Listing, limits: Limits, file: str, *, is_rank_local: bool = False
) -> Layout:
    data, metadata_file = read_bounded(store, listing, file, max_bytes=limits.max_metadata_bytes)
    tables = read_metadata(data, file=file, limits=limits)
    bag = FindingBag()
    of_megatron = () if is_rank_local else check_megatron(store, listing, limits, tables)
    shards = tuple(_placed(shard, store, listing, limits, bag) for shard in tables.shards)
    return Layout(
        format=ADAPTER.name,
        metadata_files=(metadata_file,),
        shards=shards,
        tensors=tables.tensors,
        objects=tables.objects,
        findings=(*tables.findings, *bag.findings(), *of_megatron),
        stock_globals=tables.globals,
        stock_reader_gap=_stock_reader_gap(tables, shards),
        is_rank_local=is_rank_local,
        save_id=tables.save_id,
        sidecars=tuple(name for name in SIDECARS if name in listing.files),
        missing_items=tables.missing_items,
        orphan_items=tables.orphan_items,
        notes=_notes(tables),
    )


def _placed(shard: Shard, store: Store, listing: Listing, limits: Limits, bag: FindingBag) -> Shard:
    if is_behind_objects(shard):
        return unreadable_behind_objects(shard, listing, bag)
    return place_in_file(shard, store, listing, limits, bag) if is_safetensors(shard) else shard


def _stock_reader_gap(tables: MetadataTables, shards: tuple[Shard, ...]) -> str | None:
    if any(shard.encoding is Encoding.SAFETENSORS for shard in shards):
        return STOCK_READER_GAP
    return _OLMO_GAP if _OLMO_STORAGE_INFO in tables.globals else None


def _notes(tables: MetadataTables) -> tuple[str, ...]:
    is_old = any(fqn == "param_groups" or fqn.endswith(".param_groups") for fqn in tables.objects)
    return (_PRE_2_4_NOTE,) if is_old else ()


ADAPTER: Final = DcpAdapter()
