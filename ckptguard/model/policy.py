"""What the caller asks for: depth, policies, limits. All of it is recorded beside the verdict."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30


class Depth(StrEnum):
    """How far to go; each depth includes those before it."""

    STRUCTURE = "structure"  # listing and metadata
    CONTENT = "content"  # every byte, once, without torch
    LOAD = "load"  # the same bytes through torch.distributed.checkpoint, in a child


class NumericsMode(StrEnum):
    """What check 7 does with non-finite values."""

    OFF = "off"
    REPORT = "report"
    ENFORCE = "enforce"


class StoreTimes(StrEnum):
    """Whether modification times of a store are those of the writer."""

    ORIGINAL = "original"
    COPIED = "copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on hostile or enormous input; beyond one: UNKNOWN(`limit_exceeded`)."""

    max_metadata_bytes: int = 4 * GIB
    max_items: int = 20_000_000
    max_files: int = 10_000_000
    max_object_bytes: int = 1 * GIB
    """Largest BYTES item, or transformed item after decoding, held in memory."""
    max_header_bytes: int = 100_000_000
    """Largest safetensors header; the safetensors library has the same limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The software that will load the checkpoint: `--reader torch=2.13,python=3.11`."""

    torch: tuple[int, int] | None = None
    python: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that may change a verdict besides the bytes.

    Args:
        depth: How far to go.
        numerics: What to do with non-finite values.
        is_strict_objects: Objects that we do not build are `unknown`, not a warning.
        allowed_globals: `module.name` that the user vouches for.
        reader: Who will load; None means the canary itself.
        settle_s: Seconds after which a missing or short file is looked at again.
        mtime_tolerance_s: Clock slack between files of one save.
        times: Whether this store's times are the writer's.
        is_mtime_ignored: Do not look at times at all.
        required_fqns: Glob patterns of which each must match a tensor or object (`--profile`).
        window_bytes: Read buffers of one process, all threads together.
        jobs: Shards read at the same time; None: one per core.
        is_direct: Drop the page cache of each file before it is read.
        deadline_s: Seconds for the whole load; None: derived from the bytes.
    """

    depth: Depth = Depth.LOAD
    numerics: NumericsMode = NumericsMode.REPORT
    is_strict_objects: bool = False
    allowed_globals: frozenset[str] = frozenset()
    reader: Reader | None = None
    settle_s: float = 30.0
    mtime_tolerance_s: float = 5.0
    times: StoreTimes = StoreTimes.ORIGINAL
    is_mtime_ignored: bool = False
    required_fqns: tuple[str, ...] = ()
    window_bytes: int = 1 * GIB
    jobs: int | None = None
    device: str = "cpu"
    is_direct: bool = False
    is_stock_load: bool = False
    deadline_s: float | None = None
    limits: Limits = field(default_factory=Limits)
