"""The adapter for Meta's torch_checkpointing: `ITEM_RANK.pt` files and a `metadata.pkl`.

The metadata names the world size and, for each item that can be resharded, the ranks that
wrote it. It is a pickle of plain values: anything else in it is refused. The files are
torch.save zips with CRC-32s. How the slices of a tensor lie in them is not looked at.

Source: torch_checkpointing 0.1.1, distributed_metadata.py, checkpoint_layout.py
(`default_torch_layout_info`).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from ckptguard.errors import LimitExceededError
from ckptguard.formats.dcp_findings import FindingBag, not_opened, shown, trailing, unreadable
from ckptguard.formats.dcp_paths import contained
from ckptguard.formats.metadata_files import empty, escaping, malformed, read_file
from ckptguard.formats.pickle_reader import PickleError, read_pickle
from ckptguard.formats.sightings import TORCH_CHECKPOINTING, is_torch_checkpointing
from ckptguard.formats.torch_save import TORCH_SUFFIXES, sniff_torch_zip
from ckptguard.formats.torch_save_sets import MAX_RANKS
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import Store

FORMAT: Final = "torch_checkpointing"
STOCK_READER_GAP: Final = "torch_checkpointing's own files: torch's FileSystemReader reads .distcp files"
_RANK_FILE: Final = re.compile(r"(?P<item>.+)_(?P<rank>\d{1,6})\.pt")
_MAX_FILES: Final = 10_000_000
_NOT_LOOKED_INTO: Final = (
    "which part of each tensor a rank's file holds was not held against metadata.pkl: no coverage is claimed"
)


class TorchCheckpointingAdapter:
    """The format `torch_checkpointing`."""

    name = FORMAT

    def recognises(self, listing: Listing) -> bool:
        """Say whether its metadata and a rank's file stand directly in this folder."""
        return is_torch_checkpointing(
            (*listing.names, *(path for path in listing.escapes if "/" not in path))
        )

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Read the metadata.

        Returns:
            One layout, with a shard for every file that an item's ranks should have written.

        Raises:
            StoreError: The store did not deliver.
            LimitExceededError: Beyond `limits`.
        """
        if TORCH_CHECKPOINTING not in listing.files:  # a link out of the root
            return (Layout(format=FORMAT, findings=(not_opened(TORCH_CHECKPOINTING),)),)
        data, file = read_file(store, listing, TORCH_CHECKPOINTING, limits)
        bag = FindingBag()
        declared = _read_declared(data, bag)
        present = {name for name in listing.names if PurePosixPath(name).suffix in TORCH_SUFFIXES}
        stale = {name for name in present if _rank_of(name) >= (declared.world_size or MAX_RANKS)}
        present -= stale
        for finding in map(_left_over, sorted(stale)):
            bag.add(finding)
        for finding in _gaps(present | declared.files, declared.world_size):
            bag.add(finding)
        shards = tuple(_shard(store, listing, name) for name in sorted(present | declared.files))
        used = {TORCH_CHECKPOINTING, *(shard.path for shard in shards)}
        return (
            Layout(
                format=FORMAT,
                metadata_files=(file,),
                shards=shards,
                objects=tuple(item.fqn for shard in shards for item in shard.items),
                findings=bag.findings(),
                stock_globals=declared.globals,
                stock_reader_gap=STOCK_READER_GAP,
                sidecars=tuple(name for name in listing.names if name not in used),
                notes=(_NOT_LOOKED_INTO,),
            ),
        )


ADAPTER: Final = TorchCheckpointingAdapter()


class _Declared(NamedTuple):
    """What the metadata demands.

    Args:
        world_size: Ranks that saved; None where it does not say.
        files: Paths that it names.
        globals: `module.name` of what a real unpickler would import; healthy metadata has none.
    """

    world_size: int | None = None
    files: frozenset[str] = frozenset()
    globals: frozenset[str] = frozenset()


def _read_declared(data: bytes, bag: FindingBag) -> _Declared:
    if not data:
        bag.add(empty(TORCH_CHECKPOINTING))
        return _Declared()
    try:
        reading = read_pickle(data, builders={})
    except PickleError as error:
        bag.add(unreadable(TORCH_CHECKPOINTING, data, error))
        return _Declared(globals=error.globals)
    if reading.length_bytes < len(data):
        bag.add(trailing(TORCH_CHECKPOINTING, end=reading.length_bytes, length_bytes=len(data)))
    match reading.value:
        case {"world_size": int(world_size), "metadata": dict(items)} if 0 < world_size <= MAX_RANKS:
            files = frozenset(_declared_files(items, world_size, bag))
            return _Declared(world_size, files, reading.globals)
    what = f"is {shown(reading.value)} without world size and items: a version that is not read?"
    bag.add(malformed(TORCH_CHECKPOINTING, what, is_certain=False))
    return _Declared(globals=reading.globals)


def _declared_files(items: Mapping[object, object], world_size: int, bag: FindingBag) -> Iterator[str]:
    """Yield the file of each item and rank: as its layout says, else by the default name."""
    if len(items) * world_size > _MAX_FILES:
        msg = (
            f"{TORCH_CHECKPOINTING} names {len(items)} items of {world_size} ranks, limit {_MAX_FILES} files"
        )
        raise LimitExceededError(msg)
    for item, facts in items.items():
        layouts = facts.get("rank_to_layout_info") if isinstance(facts, dict) else None
        if not isinstance(item, str) or not isinstance(layouts, dict):
            bag.add(
                malformed(
                    TORCH_CHECKPOINTING, f"says nothing of the ranks of {shown(item)}", is_certain=False
                )
            )
            continue
        for rank, layout in layouts.items():
            path = layout.get("file_path") if isinstance(layout, dict) else f"{item}_{_rank_text(rank)}.pt"
            safe = contained(path) if isinstance(path, str) else None
            if safe is None:
                bag.add(escaping(TORCH_CHECKPOINTING, path, fqn=item))
            else:
                yield safe


def _rank_of(name: str) -> int:
    match = _RANK_FILE.fullmatch(name)
    return int(match["rank"]) if match else 0


def _left_over(name: str) -> Finding:
    return Finding(
        code=FindingCode.UNREFERENCED_FILE,
        check=CheckName.EXISTENCE,
        severity=Severity.WARNING,
        message=f"{name} is of a rank that did not take part in this save; left over from a larger one?",
        file=name,
    )


def _rank_text(rank: object) -> str:
    return str(rank) if isinstance(rank, int) and 0 <= rank < MAX_RANKS else "?"


def _gaps(names: AbstractSet[str], world_size: int | None) -> Iterator[Finding]:
    """Doubt an item that several ranks wrote and others did not.

    Items that cannot be resharded stand in no metadata. What only rank 0 writes is whole.
    """
    series: dict[str, set[int]] = defaultdict(set)
    for match in filter(None, map(_RANK_FILE.fullmatch, names)):
        series[match["item"]].add(int(match["rank"]))
    for item, ranks in sorted(series.items()):
        absent = sorted(set(range(world_size or max(ranks) + 1)) - ranks)
        if absent and ranks != {0}:
            yield Finding(
                code=FindingCode.MISSING_SHARD,
                check=CheckName.EXISTENCE,
                severity=Severity.UNKNOWN,
                message=f"{item}: files of {len(ranks)} of {world_size or max(ranks) + 1} ranks,"
                f" none of rank {absent[0]}",
                file=f"{item}_{absent[0]}.pt",
                expected=f"{item}_{absent[0]}.pt",
                observed="no such file",
                is_retryable=True,
            )


def _shard(store: Store, listing: Listing, path: str) -> Shard:
    stat = listing.files.get(path)
    is_torch = PurePosixPath(path).suffix in TORCH_SUFFIXES
    if is_torch and (stat is None or sniff_torch_zip(store, listing, path)):
        length = stat.length_bytes if stat else 0
        whole = Item(path, ItemKind.BYTES, 0, length)
        return Shard(path=path, encoding=Encoding.TORCH_SAVE, items=(whole,), min_length_bytes=max(length, 1))
    return Shard(path=path, encoding=Encoding.OPAQUE, items=(), min_length_bytes=1)
