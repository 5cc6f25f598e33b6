"""How two checkpoints of a run differ: their tensors and their files, held side by side as both go by.

Both lists are sorted, so each is read once and nothing is kept but the differences of one page.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from ckptguard.model.report import TensorNumerics
from ckptguard.model.tensor_list import TensorEntry, parse_line

MAX_LOOKED_AT: Final = 9_000
"""Entries of both lists together that one page looks at; it may so be short while there is a next one."""
JUMP: Final = 10.0
"""A tensor whose largest magnitude grew or shrank so many times is told."""

_LESS_THAN_ANY: Final = 1e-30
_Entry = TypeVar("_Entry")
_Change = TypeVar("_Change")


class Difference(StrEnum):
    """What became of a tensor or a file."""

    ADDED = "added"
    REMOVED = "removed"
    DTYPE = "dtype"
    SHAPE = "shape"
    STORED = "stored otherwise"  # slices, bytes or number of files
    VALUES = "values"  # finite, zero, denormal, or the largest magnitude by `JUMP`
    LENGTH = "length"
    CONTENT = "content"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorChange:
    """A tensor that differs.

    Args:
        before: None: it was added.
        after: None: it was removed.
        differences: How; at least one.
    """

    before: TensorEntry | None
    after: TensorEntry | None
    differences: tuple[Difference, ...]

    @property
    def entry(self) -> TensorEntry:
        """Whichever there is."""
        entry = self.after or self.before
        assert entry is not None  # noqa: S101 - one of both is there
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that came, went, or has another length."""

    path: str
    bytes_before: int | None
    bytes_after: int | None
    difference: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPage(Generic[_Change]):
    """Some of the differences.

    Args:
        changes: In the order of names.
        counts: Of everything that was looked at for this page.
        next: How many entries of both lists were passed; None: both ended.
    """

    changes: tuple[_Change, ...]
    counts: Mapping[Difference, int]
    next: tuple[int, int] | None


def diff_tensors(before: Iterator[bytes], after: Iterator[bytes], *, limit: int) -> DiffPage[TensorChange]:
    """Hold two lists of tensors against each other.

    Args:
        before: Lines of the earlier one, from where the page starts.
        after: Lines of the later one.
        limit: Changes at most.
    """
    pairs = _pairs(before, after, _line_order)
    return _page(pairs, _tensor_change, limit=limit)


def diff_files(
    before: Iterator[dict[str, Any]], after: Iterator[dict[str, Any]], *, limit: int
) -> DiffPage[FileChange]:
    """Hold two lists of evidence against each other.

    Every save of a training job has other bytes in its shards: this is counted, not listed.
    """
    pairs = _pairs(before, after, _file_order)
    return _page(pairs, _file_change, limit=limit)


def _page(
    pairs: Iterator[tuple[_Entry | None, _Entry | None]],
    change_of: Callable[[_Entry | None, _Entry | None], tuple[_Change | None, tuple[Difference, ...]]],
    *,
    limit: int,
) -> DiffPage[_Change]:
    changes: list[_Change] = []
    counts: Counter[Difference] = Counter()
    old = new = 0
    for one, other in pairs:
        if len(changes) == limit or old + new >= MAX_LOOKED_AT:
            return DiffPage(changes=tuple(changes), counts=counts, next=(old, new))
        change, differences = change_of(one, other)
        for difference in differences:
            counts[difference] += 1
        old, new = old + (one is not None), new + (other is not None)
        if change is not None:
            changes.append(change)
    return DiffPage(changes=tuple(changes), counts=counts, next=None)


def _pairs(
    before: Iterator[_Entry], after: Iterator[_Entry], order: Callable[[_Entry, _Entry], int]
) -> Iterator[tuple[_Entry | None, _Entry | None]]:
    one, other = next(before, None), next(after, None)
    while one is not None or other is not None:
        side = _side(one, other, order)
        yield (one if side <= 0 else None, other if side >= 0 else None)
        one = next(before, None) if side <= 0 else one
        other = next(after, None) if side >= 0 else other


def _side(one: _Entry | None, other: _Entry | None, order: Callable[[_Entry, _Entry], int]) -> int:
    """Return -1: the old list's comes first; 1: the new list's; 0: they are of one name."""
    if one is None or other is None:
        return 1 if one is None else -1
    return order(one, other)


def _line_order(one: bytes, other: bytes) -> int:
    if _is_same_but_values(one, other):
        return 0
    old, new = parse_line(one).key, parse_line(other).key
    return (old > new) - (old < new)


def _file_order(one: dict[str, Any], other: dict[str, Any]) -> int:
    old, new = str(one["path"]), str(other["path"])
    return (old > new) - (old < new)


def _measured_at(line: bytes) -> int:
    """Return where a line says what was measured: its last member, which holds no list."""
    return len(line) - len(b"null]") if line.endswith(b",null]") else line.rfind(b",[") + 1


def _is_same_but_values(one: bytes, other: bytes) -> bool:
    at = _measured_at(one)
    return at == _measured_at(other) and one[:at] == other[:at]


def _tensor_change(
    one: bytes | None, other: bytes | None
) -> tuple[TensorChange | None, tuple[Difference, ...]]:
    if one is not None and other is not None and _is_unchanged(one, other):
        return None, (Difference.SAME,)
    before = None if one is None else parse_line(one)
    after = None if other is None else parse_line(other)
    differences = tuple(_differences(before, after))
    if not differences:
        return None, (Difference.SAME,)
    return TensorChange(before=before, after=after, differences=differences), differences


def _is_unchanged(one: bytes, other: bytes) -> bool:
    """Say so without parsing: nearly every line of two saves of one model is so."""
    at = _measured_at(one)
    return _is_same_but_values(one, other) and not _measures_jump(one[at:], other[at:])


def _differences(before: TensorEntry | None, after: TensorEntry | None) -> Iterator[Difference]:
    if before is None or after is None:
        yield Difference.ADDED if before is None else Difference.REMOVED
        return
    if before.dtype != after.dtype:
        yield Difference.DTYPE
    if before.shape != after.shape:
        yield Difference.SHAPE
    if _stored(before) != _stored(after):
        yield Difference.STORED
    if before.numerics is not None and after.numerics is not None and _jumps(before.numerics, after.numerics):
        yield Difference.VALUES


def _stored(entry: TensorEntry) -> tuple[int, int, int]:
    return entry.num_slices, entry.length_bytes, entry.num_files


def _measures_jump(one: bytes, other: bytes) -> bool:
    """As `_jumps`, of texts such as `[-0.5,0.5,true,false,false]]` or `null]`."""
    if one == other or one[:1] != other[:1]:
        return False
    (low, high, *flags), (new_low, new_high, *new_flags) = one[1:-2].split(b","), other[1:-2].split(b",")
    if flags != new_flags:
        return True
    is_finite = flags[0] == b"true"
    return is_finite and _is_far(_magnitude(low, high), _magnitude(new_low, new_high))


def _jumps(before: TensorNumerics, after: TensorNumerics) -> bool:
    if before[2:] != after[2:]:
        return True
    return before.is_finite and _is_far(_magnitude(*before[:2]), _magnitude(*after[:2]))


def _magnitude(low: float | bytes, high: float | bytes) -> float:
    return max(abs(float(low)), abs(float(high)), _LESS_THAN_ANY)


def _is_far(old: float, new: float) -> bool:
    return not old / JUMP < new < old * JUMP


def _file_change(
    one: dict[str, Any] | None, other: dict[str, Any] | None
) -> tuple[FileChange | None, tuple[Difference, ...]]:
    difference = _file_difference(one, other)
    if difference in (Difference.SAME, Difference.CONTENT):
        return None, (difference,)
    entry = one or other or {}
    change = FileChange(
        path=entry["path"],
        bytes_before=None if one is None else one["length_bytes"],
        bytes_after=None if other is None else other["length_bytes"],
        difference=difference,
    )
    return change, (difference,)


def _file_difference(one: dict[str, Any] | None, other: dict[str, Any] | None) -> Difference:
    if one is None or other is None:
        return Difference.ADDED if one is None else Difference.REMOVED
    if one["length_bytes"] != other["length_bytes"]:
        return Difference.LENGTH
    is_same = one.get("checksum") is not None and one.get("checksum") == other.get("checksum")
    return Difference.SAME if is_same else Difference.CONTENT
