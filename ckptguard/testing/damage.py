"""`ckptguard damage`: a named fault in a copy of any checkpoint, for drills.

The original is only read. What was done is returned, so that a drill can hold a
verdict against it.
"""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ckptguard.errors import ConfigError
from ckptguard.testing import edits
from ckptguard.testing.aim import Extent, find_payloads, find_shards
from ckptguard.testing.case import Damage


class DamageKind(StrEnum):
    """Faults that any checkpoint can suffer."""

    BIT_FLIP = "bit_flip"  # one bit, inside a tensor unless a file or offset is named
    ZERO_RANGE = "zero_range"  # a lost page
    SPARSE_HOLE = "sparse_hole"  # a whole shard reads as zeros
    TRUNCATE = "truncate"  # bytes missing at the end of a shard
    EMPTY = "empty"  # a shard of 0 bytes
    MISSING = "missing"  # a shard that is not there
    SWAP = "swap"  # two shards under each other's names
    APPEND = "append"  # a byte too many at the end of a shard
    INSERT = "insert"  # a byte too many at the start of a shard
    METADATA_MISSING = "metadata_missing"
    METADATA_HALF = "metadata_half"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where the fault goes; what is None is drawn from the seed.

    Args:
        file: Relative to the checkpoint.
        offset: First byte, from the start of `file`.
        bit: 0 to 7, 0 is the least significant.
        length_bytes: How much to zero or to cut off.
        fqn: Tensor whose payload is hit.
    """

    file: str | None = None
    offset: int | None = None
    bit: int | None = None
    length_bytes: int | None = None
    fqn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """The copy, the aim, and the chance that fills its gaps."""

    folder: Path
    aim: Aim
    chance: random.Random


DEFAULT_ZEROED_BYTES: Final = 4096
"""A page of memory, the unit that file systems lose."""
DEFAULT_CUT_BYTES: Final = 4096
_BITS: Final = 8
_METADATA: Final = (".metadata", "model.safetensors.index.json")


def damage_copy(
    source: Path, destination: Path, *, kind: DamageKind, seed: int = 0, aim: Aim | None = None
) -> Damage:
    """Copy a checkpoint and put one fault into the copy.

    The copy keeps the original's times, and so does the damaged file: storage that rots
    does not touch them.

    Args:
        source: Root of the checkpoint; only read.
        destination: New folder for the copy.
        kind: Which fault.
        seed: Decides what `aim` leaves open; the same seed gives the same fault.
        aim: Where.

    Returns:
        What was done.

    Raises:
        ConfigError: The source is no folder, the destination exists or lies inside the
            source, or there is nothing in the checkpoint that the aim describes. Nothing
            is left behind.
    """
    _require_new_place(source, destination)
    edits.copy_tree(source, destination)
    draw = _Draw(folder=destination, aim=aim or Aim(), chance=random.Random(seed))  # noqa: S311 - a drill
    try:
        return _FAULTS[kind](draw)
    except BaseException:
        shutil.rmtree(destination)
        raise


def _require_new_place(source: Path, destination: Path) -> None:
    if not source.is_dir():
        msg = f"{source} is not a folder"
        raise ConfigError(msg)
    if destination.exists() or destination.is_symlink():
        msg = f"{destination} exists; damage is only ever done to a new copy"
        raise ConfigError(msg)
    if destination.resolve().is_relative_to(source.resolve()):
        msg = f"{destination} lies inside {source}; the original is never touched"
        raise ConfigError(msg)


def _shard(draw: _Draw) -> str:
    if draw.aim.file is not None:
        return _existing(draw, draw.aim.file)
    shards = find_shards(draw.folder)
    if not shards:
        msg = "no file of the checkpoint holds bytes"
        raise ConfigError(msg)
    return draw.chance.choice(shards)


def _existing(draw: _Draw, file: str) -> str:
    path = (draw.folder / file).resolve()
    if not path.is_relative_to(draw.folder.resolve()) or not path.is_file():
        msg = f"no file {file} in the checkpoint"
        raise ConfigError(msg)
    return file


def _extent(draw: _Draw) -> Extent:
    """Return the bytes that a fault may hit: a place named, a tensor's payload, or a file."""
    aim = draw.aim
    if aim.file is not None:
        file = _existing(draw, aim.file)
        length = (draw.folder / file).stat().st_size
        start = aim.offset or 0
        if not 0 <= start < length:
            msg = f"offset {start} is not inside {file}, which has {length} bytes"
            raise ConfigError(msg)
        return Extent(file=file, offset=start, length_bytes=1 if aim.offset is not None else length)
    payloads = [extent for extent in find_payloads(draw.folder, fqn=aim.fqn) if extent.length_bytes]
    if payloads:
        return draw.chance.choice(payloads)
    if aim.fqn is not None:
        msg = f"no stored bytes of a tensor {aim.fqn} in the checkpoint"
        raise ConfigError(msg)
    file = _shard(draw)
    return Extent(file=file, offset=0, length_bytes=(draw.folder / file).stat().st_size)


def _bit_flip(draw: _Draw) -> Damage:
    extent = _extent(draw)
    bit = draw.chance.randrange(_BITS) if draw.aim.bit is None else draw.aim.bit
    if not 0 <= bit < _BITS:
        msg = f"bit {bit} is not between 0 and {_BITS - 1}"
        raise ConfigError(msg)
    offset = extent.offset + draw.chance.randrange(extent.length_bytes)
    return edits.flip_bit(draw.folder, extent.file, offset=offset, bit=bit, fqn=extent.fqn)


def _zero_range(draw: _Draw) -> Damage:
    extent = _extent(draw)
    length = draw.aim.length_bytes or DEFAULT_ZEROED_BYTES
    if draw.aim.offset is None:
        length = min(length, extent.length_bytes)
    latest = max(0, extent.length_bytes - length)
    offset = extent.offset + draw.chance.randint(0, latest)
    return edits.zero_range(draw.folder, extent.file, offset=offset, length_bytes=length)


def _sparse_hole(draw: _Draw) -> Damage:
    return edits.make_sparse(draw.folder, _shard(draw))


def _truncate(draw: _Draw) -> Damage:
    removed = draw.aim.length_bytes or DEFAULT_CUT_BYTES
    return edits.truncate_by(draw.folder, _shard(draw), removed_bytes=removed)


def _empty(draw: _Draw) -> Damage:
    return edits.truncate(draw.folder, _shard(draw), length_bytes=0)


def _missing(draw: _Draw) -> Damage:
    return edits.remove(draw.folder, _shard(draw))


def _swap(draw: _Draw) -> Damage:
    first = _shard(draw)
    others = [shard for shard in find_shards(draw.folder) if shard != first]
    if not others:
        msg = "the checkpoint has one shard only; there is nothing to swap it with"
        raise ConfigError(msg)
    return edits.swap(draw.folder, first, draw.chance.choice(others))


def _append(draw: _Draw) -> Damage:
    return edits.append(draw.folder, _shard(draw), data=b"\x00")


def _insert(draw: _Draw) -> Damage:
    return edits.insert(draw.folder, _shard(draw), offset=draw.aim.offset or 0, data=b"\x00")


def _metadata(draw: _Draw) -> str:
    if draw.aim.file is not None:
        return _existing(draw, draw.aim.file)
    found = sorted(path for name in _METADATA for path in draw.folder.rglob(name))
    if not found:
        msg = "the checkpoint has no metadata file"
        raise ConfigError(msg)
    return found[0].relative_to(draw.folder).as_posix()


def _metadata_missing(draw: _Draw) -> Damage:
    return edits.remove(draw.folder, _metadata(draw))


def _metadata_half(draw: _Draw) -> Damage:
    file = _metadata(draw)
    return edits.truncate(draw.folder, file, length_bytes=(draw.folder / file).stat().st_size // 2)


_FAULTS: Final[Mapping[DamageKind, Callable[[_Draw], Damage]]] = {
    DamageKind.BIT_FLIP: _bit_flip,
    DamageKind.ZERO_RANGE: _zero_range,
    DamageKind.SPARSE_HOLE: _sparse_hole,
    DamageKind.TRUNCATE: _truncate,
    DamageKind.EMPTY: _empty,
    DamageKind.MISSING: _missing,
    DamageKind.SWAP: _swap,
    DamageKind.APPEND: _append,
    DamageKind.INSERT: _insert,
    DamageKind.METADATA_MISSING: _metadata_missing,
    DamageKind.METADATA_HALF: _metadata_half,
}
