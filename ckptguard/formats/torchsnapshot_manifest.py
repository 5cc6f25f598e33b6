"""torchsnapshot's `.snapshot_metadata`: which tensors and objects there are, and where they lie.

JSON since October 2022; torchsnapshot reads it with a YAML parser. Entries stand under
`RANK/path/of/keys`; the same tensor may stand under several ranks.

Source: torchsnapshot/manifest.py and flatten.py, version 0.1.0 and later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NamedTuple

from ckptguard.errors import FormatError, LimitExceededError
from ckptguard.formats.dcp_findings import FindingBag, shown
from ckptguard.formats.dcp_paths import contained
from ckptguard.formats.metadata_files import escaping, malformed
from ckptguard.formats.torch_dtypes import ITEMSIZES
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Slice
from ckptguard.model.policy import Limits

RAW: Final = "buffer_protocol"
TORCH_SAVE: Final = "torch_save"

_SHARDED: Final = {"ShardedTensor": "shards", "DTensor": "shards", "ChunkedTensor": "chunks"}
_CONTAINERS: Final = frozenset({"list", "dict", "OrderedDict"})
_PRIMITIVES: Final = frozenset({"int", "str", "bool", "bytes", "float"})
_MAX_DIMS: Final = 64
_MAX_EXTENT: Final = 1 << 63


class Blob(NamedTuple):
    """Where bytes lie.

    Args:
        location: File, relative to the snapshot.
        serializer: torchsnapshot's name of it.
        start: First byte.
        end: Byte after the last; None: the file's end.
        is_whole_file: A load takes all of the file, and needs exactly these bytes.
    """

    location: str
    serializer: str
    start: int
    end: int | None
    is_whole_file: bool = True


class Piece(NamedTuple):
    """A part of one tensor, and its bytes."""

    part: Slice
    dtype: str
    blob: Blob


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One tensor.

    Args:
        shape: As stated; None where only its pieces tell.
        pieces: In the order of the file.
    """

    shape: tuple[int, ...] | None
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one `.snapshot_metadata` says.

    Args:
        tensors: By name: the logical path where all ranks share it, `RANK/path` where not.
        objects: By name.
        findings: What is wrong with it.
    """

    tensors: Mapping[str, Stored]
    objects: Mapping[str, Blob]
    findings: tuple[Finding, ...]


def read_snapshot(value: Mapping[str, Any], *, file: str, limits: Limits) -> Snapshot:
    """Read the parsed metadata; damage becomes findings.

    Raises:
        LimitExceededError: More entries than `limits.max_items`.
    """
    reading = _Reading(file=file)
    entries = value.get("manifest")
    world_size = value.get("world_size")
    if not isinstance(entries, dict) or not isinstance(world_size, int) or world_size < 1:
        reading.bag.add(malformed(file, "has no manifest, or no world size"))
        return reading.result()
    if len(entries) > limits.max_items:
        msg = f"{file} lists {len(entries)} entries, limit {limits.max_items}"
        raise LimitExceededError(msg)
    for path, entry in entries.items():
        try:
            reading.add(path, entry, world_size=world_size)
        except FormatError as error:
            reading.bag.add(malformed(file, f"{shown(path)}: {error}", fqn=path))
    reading.bag_lost_keys(entries)
    return reading.result()


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Entries, put together over all ranks."""

    file: str
    bag: FindingBag = field(default_factory=FindingBag)
    tensors: dict[str, Stored] = field(default_factory=dict)
    objects: dict[str, Blob] = field(default_factory=dict)

    def result(self) -> Snapshot:
        return Snapshot(tensors=self.tensors, objects=self.objects, findings=self.bag.findings())

    def add(self, path: str, entry: object, *, world_size: int) -> None:
        """Take one entry.

        Raises:
            FormatError: It is not what torchsnapshot writes.
        """
        rank, _, logical = path.partition("/")
        if not rank.isdecimal() or int(rank[:9]) >= world_size:
            self.bag.add(malformed(self.file, f"{shown(path)}: no rank of {world_size}", is_certain=False))
        members = _members(entry)
        kind = members.get("type")
        name = logical if members.get("replicated") is True else path
        if kind in _SHARDED:
            self._sharded(logical if kind != "ChunkedTensor" else name, members, _SHARDED[kind])
        elif kind == "Tensor":
            sizes = _extents(members, "shape")
            piece = self._piece(name, members, Slice((0,) * len(sizes), sizes))
            self._tensor(name, path, Stored(shape=sizes, pieces=[piece] if piece else []))
        elif kind == "object":
            self._object(name, path, members)
        elif kind not in _CONTAINERS | _PRIMITIVES:
            what = f"{shown(path)} is a {shown(kind)}, which this version does not know"
            self.bag.add(malformed(self.file, what, is_certain=False))

    def _sharded(self, name: str, members: Mapping[str, Any], key: str) -> None:
        shape = _extents(members, "shape") if "shape" in members else None
        stored = self.tensors.setdefault(name, Stored(shape=shape))
        known = {piece.part for piece in stored.pieces}
        for shard in map(_members, _sequence(members, key)):
            part = Slice(_extents(shard, "offsets"), _extents(shard, "sizes"))
            piece = self._piece(name, _members(shard.get("tensor")), part)
            # Ranks that hold a replica name the same place.
            if piece is not None and part not in known:
                known.add(part)
                stored.pieces.append(piece)

    def _tensor(self, name: str, path: str, stored: Stored) -> None:
        first = self.tensors.setdefault(name, stored)
        if first != stored:
            self.tensors[path] = stored

    def _object(self, name: str, path: str, members: Mapping[str, Any]) -> None:
        blob = self._blob(name, members)
        if blob is not None and self.objects.setdefault(name, blob) != blob:
            self.objects[path] = blob

    def _piece(self, name: str, members: Mapping[str, Any], part: Slice) -> Piece | None:
        blob = self._blob(name, members)
        dtype = members.get("dtype")
        if not isinstance(dtype, str):
            msg = "no dtype"
            raise FormatError(msg)
        sizes = _extents(members, "shape")
        if sizes != part.sizes:
            msg = f"a tensor of shape {list(sizes)} in a place of sizes {list(part.sizes)}"
            raise FormatError(msg)
        return Piece(part, dtype.removeprefix("torch."), blob) if blob else None

    def _blob(self, name: str, members: Mapping[str, Any]) -> Blob | None:
        location, serializer = members.get("location"), members.get("serializer")
        if not isinstance(location, str) or not isinstance(serializer, str):
            msg = "no location, or no serializer"
            raise FormatError(msg)
        path = contained(location)
        if path is None:
            self.bag.add(escaping(self.file, location, fqn=name))
            return None
        start, end = _byte_range(members.get("byte_range"))
        if serializer == RAW:
            end = _raw_end(members, start, end)
        return Blob(path, serializer, start, end, members.get("byte_range") is None)

    def bag_lost_keys(self, entries: Mapping[str, Any]) -> None:
        """Doubt a dict of which keys have no entry: a load leaves them out without a word."""
        present = {path.partition("/")[2] for path in entries}
        for path, key in _declared_keys(entries):
            logical = path.partition("/")[2]
            if f"{logical}/{key}" not in present:
                self.bag.add(_lost_key(self.file, path, key))


def _declared_keys(entries: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, entry in entries.items():
        keys = entry.get("keys") if isinstance(entry, dict) else None
        if isinstance(keys, list):
            for key in keys:
                if isinstance(key, str | int):
                    yield path, _encoded(str(key))


def _encoded(key: str) -> str:
    """Return a key as it stands in paths (`_encode`, torchsnapshot/flatten.py)."""
    return key.replace("%", "%25").replace("/", "%2F")


def _lost_key(file: str, path: str, key: str) -> Finding:
    return Finding(
        code=FindingCode.MISSING_ITEM,
        check=CheckName.COVERAGE,
        severity=Severity.UNKNOWN,
        message=f"{file}: {path} has the key {shown(key)}, and no entry says where it is stored;"
        " a load leaves it out",
        file=file,
        fqn=f"{path}/{key}"[:1000],
    )


def _raw_end(members: Mapping[str, Any], start: int, end: int | None) -> int | None:
    """Return where bare elements end; their number is fixed by dtype and shape.

    Raises:
        FormatError: The range has another length: no load can make the tensor of it.
    """
    itemsize = ITEMSIZES.get(str(members.get("dtype")).removeprefix("torch."))
    if itemsize is None:
        return end
    length_bytes = prod(_extents(members, "shape")) * itemsize
    if length_bytes >= _MAX_EXTENT:
        msg = "more elements than any file has"
        raise FormatError(msg)
    if end is not None and end - start != length_bytes:
        msg = f"a byte range of {end - start} bytes for {length_bytes} bytes of elements"
        raise FormatError(msg)
    return start + length_bytes


def _byte_range(value: object) -> tuple[int, int | None]:
    match value:
        case None:
            return 0, None
        case [int(start), int(end)] if 0 <= start <= end < _MAX_EXTENT:
            return start, end
    msg = "no byte range that a file has"
    raise FormatError(msg)


def _members(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        msg = f"{shown(value)} instead of an object"
        raise FormatError(msg)
    return value


def _sequence(members: Mapping[str, Any], key: str) -> Sequence[object]:
    value = members.get(key)
    if not isinstance(value, list):
        msg = f"no list of {key}"
        raise FormatError(msg)
    return value


def _extents(members: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = _sequence(members, key)
    sizes = tuple(size for size in value if isinstance(size, int) and _is_count(size))
    if len(value) > _MAX_DIMS or len(sizes) != len(value):
        msg = f"{key} are no sizes of a tensor"
        raise FormatError(msg)
    return sizes


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_EXTENT
