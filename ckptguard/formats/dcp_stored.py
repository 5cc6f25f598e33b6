"""Where a checkpoint says its items lie: `storage_data`, held against what is declared."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from ckptguard.formats.dcp_declared import Declared, is_extent, is_name
from ckptguard.formats.dcp_findings import (
    FindingBag,
    malformed,
    out_of_bounds,
    shown,
    unknown_class,
)
from ckptguard.formats.dcp_paths import contained
from ckptguard.formats.dcp_values import MetadataIndex, StorageInfo
from ckptguard.formats.metadata_files import escaping
from ckptguard.formats.pickle_reader import Opaque
from ckptguard.model.layout import Encoding, Item, ItemKind, Shard, Slice, Tensor

_TOO_LARGE: Final = 1 << 63
_MAX_TRANSFORMS: Final = 16
_MANY_SLICES: Final = 512


@dataclass(slots=True)
class Placed:
    """Items by shard path, and the two ways in which declared and stored do not meet."""

    by_path: defaultdict[str, list[Item]] = field(default_factory=lambda: defaultdict(list))
    orphans: list[Item] = field(default_factory=list)
    missing: list[tuple[str, Slice | None]] = field(default_factory=list)

    def shards(self) -> tuple[Shard, ...]:
        """Return the shards, sorted by path, their items by offset."""
        return tuple(_shard(path, self.by_path[path]) for path in sorted(self.by_path))


def _shard(path: str, items: list[Item]) -> Shard:
    items.sort(key=attrgetter("offset"))
    return Shard(
        path=path,
        encoding=Encoding.TORCH_ZIP_ITEMS,
        items=tuple(items),
        min_length_bytes=max([item.offset + item.length_bytes for item in items]),
    )


class _Homes:
    """Which declared slices and objects have an item.

    torch looks an item up by FQN and the slice's first element alone (`MetadataIndex`,
    whose `index` does not take part in comparisons), so that several empty slices at
    one corner share an item.
    """

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._found: set[str] = set()
        self._slices: dict[str, dict[object, Slice]] = {}
        self._corners: dict[str, set[object]] = {}

    def find_only(self, tensor: Tensor, corner: object) -> Slice | None:
        """Return the slice of a tensor that has one, if it begins at `corner`; remember its item."""
        part = tensor.slices[0]
        if part.offsets != corner:
            return None
        self._found.add(tensor.fqn)
        return part

    def find(self, tensor: Tensor, corner: object) -> Slice | None:
        """Return the slice of any tensor that begins at `corner`; remember its item."""
        slices = self._slices.get(tensor.fqn)
        if slices is None:
            slices = self._slices[tensor.fqn] = _by_corner(tensor)
            self._corners[tensor.fqn] = set()
        key = corner if len(tensor.slices) <= _MANY_SLICES else str(corner)
        part = slices.get(key)
        if part is not None:
            self._corners[tensor.fqn].add(key)
        return part

    def find_object(self, fqn: str) -> None:
        """Remember that an object has an item."""
        self._found.add(fqn)

    def missing(self) -> list[tuple[str, Slice | None]]:
        """Return what is declared and has no item, sorted by FQN."""
        homeless: list[tuple[str, Slice | None]] = []
        for tensor in self._declared.tensors.values():
            if len(tensor.slices) == 1:
                homeless += [] if tensor.fqn in self._found else [(tensor.fqn, tensor.slices[0])]
                continue
            corners = self._corners.get(tensor.fqn, set())
            homeless += [
                (tensor.fqn, part) for part in tensor.slices if _corner(tensor, part.offsets) not in corners
            ]
        homeless += [(fqn, None) for fqn in self._declared.objects if fqn not in self._found]
        return sorted(homeless, key=lambda pair: pair[0])


def _by_corner(tensor: Tensor) -> dict[object, Slice]:
    """Index the slices of one tensor; where several begin at one corner, one that holds elements wins."""
    slices: dict[object, Slice] = {}
    for part in tensor.slices:
        corner = _corner(tensor, part.offsets)
        if corner not in slices or 0 not in part.sizes:
            slices[corner] = part
    return slices


def _corner(tensor: Tensor, offset: object) -> object:
    """Return a key for a corner: the tuple, or its text where colliding tuples would cost quadratic time."""
    return offset if len(tensor.slices) <= _MANY_SLICES else str(offset)


def place_items(
    entries: Mapping[object, object], declared: Declared, *, file: str, bag: FindingBag
) -> Placed:
    """Judge every entry of `storage_data` and find its slice or object.

    Args:
        entries: As pickled; any type may stand anywhere.
        declared: What there should be.
        file: The metadata file, for findings.
        bag: Takes `malformed_metadata`, `unknown_global`, `path_escape` and
            `item_out_of_bounds`; an item with one of these is placed nowhere, and its
            slice is not reported as missing on top.
    """
    placer = _Placer(declared, file=file, bag=bag)
    for index, info in entries.items():
        placer.place(index, info)
    # Behind a class that nobody knows an item may well lie: then nothing is called missing.
    placer.placed.missing = [] if placer.is_partial else placer.homes.missing()
    return placer.placed


class _Placer:
    """Places entries one by one; remembers paths and corners that it has judged."""

    def __init__(self, declared: Declared, *, file: str, bag: FindingBag) -> None:
        self.placed = Placed()
        self.homes = _Homes(declared)
        self.is_partial = False
        self._declared = declared
        self._file = file
        self._bag = bag
        self._paths: dict[str, str] = {}
        self._corners: dict[int, object] = {}

    def place(self, index: object, info: object) -> None:
        """Turn one entry into an item in its shard, or into a finding."""
        if type(index) is not MetadataIndex or type(info) is not StorageInfo:
            self._refuse(index, info)
            return
        fqn = index.fqn
        tensor = self._declared.tensors.get(fqn) if type(fqn) is str else None
        part = None if tensor is None else self._slice(tensor, index.offset)
        if tensor is None or part is None:
            self._place_other(index, info)
            return
        extent = self._extent(info, tensor.fqn)
        if extent is not None:
            path, offset, length, transforms = extent
            # As Item(...), in half the time.
            item = tuple.__new__(
                Item, (tensor.fqn, ItemKind.TENSOR, offset, length, tensor.dtype, part, transforms)
            )
            self.placed.by_path[path].append(item)

    def _slice(self, tensor: Tensor, corner: object) -> Slice | None:
        """Return the declared slice that an item is for, and remember that it has one."""
        if len(tensor.slices) == 1:
            return self.homes.find_only(tensor, corner)
        return self.homes.find(tensor, corner) if self._is_corner(corner) else None

    def _place_other(self, index: MetadataIndex, info: StorageInfo) -> None:
        """Place an entry that is for an object, or for nothing that is declared."""
        fqn, corner = index.fqn, index.offset
        if not is_name(fqn) or not self._is_corner(corner):
            self._bag.add(malformed(self._file, f"an item is stored for {shown(fqn)} at {shown(corner)}"))
            return
        if fqn in self._declared.broken:
            return
        is_object = corner is None and fqn in self._declared.objects
        if is_object:
            self.homes.find_object(fqn)
        extent = self._extent(info, fqn)
        if extent is not None:
            path, offset, length, transforms = extent
            kind = ItemKind.BYTES if corner is None else ItemKind.TENSOR
            item = Item(fqn, kind, offset, length, transforms=transforms)
            self.placed.by_path[path].append(item)
            self.placed.orphans += [] if is_object else [item]

    def _extent(self, info: StorageInfo, fqn: str) -> tuple[str, int, int, tuple[str, ...]] | None:
        """Return path, offset, length and transforms of an item that can be read; else report it."""
        written, offset, length = info.relative_path, info.offset, info.length
        path = self._paths.get(written) if type(written) is str else None
        if path is None:
            path = self._new_path(written, fqn)
        if path is None:
            return None
        if not (type(offset) is int and type(length) is int and 0 <= offset <= offset + length < _TOO_LARGE):
            self._bag.add(out_of_bounds(path, fqn=fqn, offset=offset, length=length))
            return None
        descriptors = info.transform_descriptors
        return path, offset, length, () if descriptors is None else self._transforms(descriptors, fqn)

    def _is_corner(self, corner: object) -> bool:
        if corner is None or id(corner) in self._corners:
            return True
        if not is_extent(corner):
            return False
        self._corners[id(corner)] = corner  # holds it, so that the id stays its own
        return True

    def _new_path(self, written: object, fqn: str) -> str | None:
        if not is_name(written):
            self._bag.add(malformed(self._file, f"{fqn} is said to lie in {shown(written)}", fqn=fqn))
            return None
        path = contained(written)
        if path is None:
            self._bag.add(escaping(self._file, written, fqn=fqn))
            return None
        self._paths[written] = path
        return path

    def _transforms(self, descriptors: object, fqn: str) -> tuple[str, ...]:
        if not isinstance(descriptors, list | tuple) or len(descriptors) > _MAX_TRANSFORMS:
            self._bag.add(malformed(self._file, f"{fqn}: its transforms are {shown(descriptors)}", fqn=fqn))
            return ()
        return tuple(text if is_name(text) else "not a name" for text in descriptors)

    def _refuse(self, index: object, info: object) -> None:
        """Report an entry that is not made of the two known classes."""
        for value, what in ((index, "a key of storage_data"), (info, "a value of storage_data")):
            if isinstance(value, Opaque):
                self.is_partial = True
                self._bag.add(unknown_class(self._file, value.ref.dotted, what))
                return
        self._bag.add(malformed(self._file, f"storage_data maps {shown(index)} to {shown(info)}"))
