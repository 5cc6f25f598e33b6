"""Slices and counts in the words of a person.

Ranges are printed inclusive (`rows 32..47`), because that is how people say them;
everywhere else they are half-open.
"""

from collections.abc import Sequence
from typing import Final

from ckptguard.model.layout import Item, Slice

_NAMED_AXES: Final = {1: ("element",), 2: ("row", "column")}
_MAX_NAMES: Final = 3


def slice_in_words(shape: tuple[int, ...], part: Slice) -> str:
    """Say which part of a tensor a slice is, e.g. `rows 32..47`.

    Args:
        shape: Whole shape, in elements; may disagree with the slice.
        part: Offsets and sizes, in elements.
    """
    if len(part.offsets) != len(shape) or len(part.sizes) != len(shape):
        return f"slice at {list(part.offsets)} of sizes {list(part.sizes)}"
    partial = [axis for axis, dim in enumerate(shape) if (part.offsets[axis], part.sizes[axis]) != (0, dim)]
    if not partial:
        return "all of it"
    names = _NAMED_AXES.get(len(shape))
    if names is None:
        return indices(part)
    return ", ".join(_range(names[axis], part.offsets[axis], part.sizes[axis]) for axis in partial)


def _range(name: str, offset: int, size: int) -> str:
    if size == 0:
        return f"no {name}s at {offset}"
    return f"{name} {offset}" if size == 1 else f"{name}s {offset}..{offset + size - 1}"


def indices(part: Slice) -> str:
    """Return a slice as Python would write it, half-open: `[32:48, 0:16]`."""
    ranges = (f"{offset}:{offset + size}" for offset, size in zip(part.offsets, part.sizes, strict=False))
    return f"[{', '.join(ranges)}]"


def item_in_words(item: Item) -> str:
    """Name an item by FQN and, for a part of a tensor, its slice: `model.w[32:48, 0:16]`."""
    return f"{item.fqn}{indices(item.slice)}" if item.slice and item.slice.sizes else item.fqn


def some_of(names: Sequence[str], *, limit: int = _MAX_NAMES) -> str:
    """Join the first names, and say how many more there are."""
    shown = ", ".join(names[:limit])
    more = len(names) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def counted(count: int, noun: str) -> str:
    """Return `1 item`, `2 items`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
