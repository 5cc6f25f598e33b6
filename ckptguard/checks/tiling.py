"""Exact tiling of a box by boxes, in any number of dimensions.

Real sharding is nested splitting along axes, so the slices of a tensor can be taken
apart by cuts that go through no slice ("guillotine cuts"). That is what is done here:
cut where no slice is cut, until single slices remain. Whatever no cut takes apart (a
pinwheel, or slices that overlap) is judged by a sweep over pairs and by volume.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Final, NamedTuple

from ckptguard.errors import LimitExceededError
from ckptguard.model.layout import Slice

MAX_OVERLAPS: Final = 8
"""Pairs of one tensor that are told; beyond, one per tangle is enough to condemn."""
MAX_FRAGMENTS: Final = 4096
"""Pieces that holes of one tangle are cut into; beyond, they are told as one region."""


class Box(NamedTuple):
    """A box by its two corners: `low` inside, `high` just outside; low < high everywhere."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def volume(self) -> int:
        """Elements inside."""
        return prod(high - low for low, high in zip(self.low, self.high, strict=True))


class Hole(NamedTuple):
    """Elements that no slice covers.

    Args:
        where: The smallest box known to hold them.
        num_elements: How many; fewer than `where` holds if their shape is too ragged to list.
    """

    where: Box
    num_elements: int


@dataclass(slots=True)
class Budget:
    """Work that may still be spent, in looks at one side of one slice."""

    looks: int

    def spend(self, looks: int) -> None:
        """Take from the budget.

        Raises:
            LimitExceededError: Nothing is left.
        """
        self.looks -= looks
        if self.looks < 0:
            msg = "slices are arranged in a way that takes too long to judge"
            raise LimitExceededError(msg)


@dataclass(slots=True, kw_only=True)
class Tiling:
    """How boxes fail to tile a region; empty lists mean an exact tiling.

    Args:
        overlaps: Pairs that share elements: the first `MAX_OVERLAPS`, then one per tangle.
        holes: What is covered by none, disjoint, not sorted.
    """

    overlaps: list[tuple[Box, Box]] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)


def box_of(part: Slice) -> Box:
    """Return a slice by its corners."""
    return Box(
        part.offsets, tuple(offset + size for offset, size in zip(part.offsets, part.sizes, strict=True))
    )


def slice_of(box: Box) -> Slice:
    """Return a box by its offsets and sizes."""
    return Slice(box.low, tuple(high - low for low, high in zip(box.low, box.high, strict=True)))


def judge_tiling(region: Box, boxes: list[Box], budget: Budget) -> Tiling:
    """Find every way in which `boxes` do not tile `region`.

    Boxes tile a region when none overlaps another and nothing is left over. Equal
    volume alone is not enough: a hole and an overlap of the same size cancel out.

    Args:
        region: The whole tensor, in elements; no side of length 0.
        boxes: Inside the region, distinct, no side of length 0; any order.
        budget: Spent as work is done.

    Raises:
        LimitExceededError: The budget is spent; nothing is known.

    Cost: O(d n log n) per level of nested sharding for d dimensions and n boxes: 10
        microseconds per slice. O(n²) pairs only for what no cut takes apart.
    """
    tiling = Tiling()
    pending: list[tuple[Box, list[Box]]] = [(region, boxes)]
    while pending:
        part, inside = pending.pop()
        budget.spend(len(inside) * len(part.low) + 1)
        if len(inside) < 2:  # noqa: PLR2004 - one box, or none, has no other to meet
            remainder = subtract(part, inside[0]) if inside else iter((part,))
            tiling.holes.extend(Hole(box, box.volume) for box in remainder)
            continue
        cut = _best_cut(part, inside)
        if cut is None:
            _judge_tangle(part, inside, tiling, budget)
        else:
            tiling.holes.extend(Hole(gap, gap.volume) for gap in cut.gaps)
            pending.extend(entry for entry in cut.groups if len(entry[1]) > 1 or entry[1][0] != entry[0])
    return tiling


class _Cut(NamedTuple):
    """A region taken apart along one axis: boxes in parts of it, and gaps between the parts."""

    groups: list[tuple[Box, list[Box]]]
    gaps: list[Box]


def _best_cut(region: Box, boxes: list[Box]) -> _Cut | None:
    """Take gaps first, where they are widest: a missing column is one hole, not one per row."""
    best: _Cut | None = None
    for axis in range(len(region.low)):
        cut = _cut_along(axis, region, boxes)
        if cut.gaps:
            return cut
        if len(cut.groups) > (len(best.groups) if best else 1):
            best = cut
    return best


def _cut_along(axis: int, region: Box, boxes: list[Box]) -> _Cut:
    ordered = sorted(boxes, key=lambda box: box.low[axis])
    cut = _Cut([], [])
    start, end, members = region.low[axis], region.low[axis], list[Box]()
    for box in ordered:
        if box.low[axis] >= end:
            if members:
                cut.groups.append((_between(axis, region, start, end), members))
            if box.low[axis] > end:
                cut.gaps.append(_between(axis, region, end, box.low[axis]))
            start, members = box.low[axis], []
        members.append(box)
        end = max(end, box.high[axis])
    cut.groups.append((_between(axis, region, start, end), members))
    if end < region.high[axis]:
        cut.gaps.append(_between(axis, region, end, region.high[axis]))
    return cut


def _between(axis: int, region: Box, start: int, end: int) -> Box:
    low, high = region
    return Box((*low[:axis], start, *low[axis + 1 :]), (*high[:axis], end, *high[axis + 1 :]))


def _judge_tangle(region: Box, boxes: list[Box], tiling: Tiling, budget: Budget) -> None:
    overlaps = _first_overlaps(boxes, max(1, MAX_OVERLAPS - len(tiling.overlaps)), budget)
    tiling.overlaps.extend(overlaps)
    missing = region.volume - sum(box.volume for box in boxes)
    if not overlaps and missing == 0:
        return
    holes = _holes(region, boxes, budget)
    if holes is not None:
        tiling.holes.extend(Hole(box, box.volume) for box in holes)
    elif not overlaps:
        tiling.holes.append(Hole(region, missing))


def _first_overlaps(boxes: list[Box], limit: int, budget: Budget) -> list[tuple[Box, Box]]:
    axis = max(range(len(boxes[0].low)), key=lambda axis: len({box.low[axis] for box in boxes}))
    found: list[tuple[Box, Box]] = []
    active: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.low[axis]):
        active = [other for other in active if other.high[axis] > box.low[axis]]
        budget.spend(len(active) + 1)
        found.extend((other, box) for other in active if is_overlapping(other, box))
        if len(found) >= limit:
            return found[:limit]
        active.append(box)
    return found


def is_overlapping(one: Box, other: Box) -> bool:
    """Say whether two boxes share an element."""
    return all(
        one_low < other_high and other_low < one_high
        for one_low, one_high, other_low, other_high in zip(
            one.low, one.high, other.low, other.high, strict=True
        )
    )


def _holes(region: Box, boxes: list[Box], budget: Budget) -> list[Box] | None:
    """Return what is left of a region, in disjoint pieces; None if they are too many."""
    left = [region]
    for box in boxes:
        budget.spend(len(left) + 1)
        left = [piece for old in left for piece in subtract(old, box)]
        if len(left) > MAX_FRAGMENTS:
            return None
    return left


def subtract(region: Box, box: Box) -> Iterator[Box]:
    """Yield the part of a region outside of a box, as disjoint boxes; the region if they do not meet."""
    if region == box:
        return
    if not is_overlapping(region, box):
        yield region
        return
    for axis in range(len(region.low)):
        if region.low[axis] < box.low[axis]:
            yield _between(axis, region, region.low[axis], box.low[axis])
        if box.high[axis] < region.high[axis]:
            yield _between(axis, region, box.high[axis], region.high[axis])
        start = max(region.low[axis], box.low[axis])
        region = _between(axis, region, start, min(region.high[axis], box.high[axis]))
