"""Plan in which pieces a shard is read: in order, once, never across a large item's start."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ckptguard.model.layout import Item

SMALL_ITEM_BYTES: Final = 256 << 10
"""Items up to this length are verified whole, in the buffer; larger ones pass in pieces."""

BLOCK_BYTES: Final = 1 << 20
"""Bytes per read. Large enough to amortise a call, small enough to stay in a core's cache
while xxh3, crc32 and aminmax pass over it (measured: benchmarks/speed.py)."""


class Span(NamedTuple):
    """Bytes `[start, end)` of a shard, read together.

    `items` lie wholly inside: one large item that fills the span, several small ones, or
    none (bytes that no item claims: hashed, not verified).
    """

    start: int
    end: int
    items: tuple[Item, ...]


def plan_spans(items: Sequence[Item], length_bytes: int) -> tuple[list[Span], list[Item]]:
    """Cut a shard into spans that cover every byte exactly once.

    Args:
        items: Sorted by offset.
        length_bytes: Length of the shard; items that end beyond it are left out (they
            are findings of `byte_count`).

    Returns:
        The spans, in order, and the items that start before their predecessor's end:
        these cannot be part of one forward pass.
    """
    spans: list[Span] = []
    overlapping: list[Item] = []
    small: list[Item] = []
    position = 0

    def close_small() -> None:
        if small:
            spans.append(Span(small[0].offset, position, tuple(small)))
            small.clear()

    for item in items:
        end = item.offset + item.length_bytes
        if end > length_bytes:
            continue
        if item.offset < position:
            overlapping.append(item)
            continue
        is_small = item.length_bytes <= SMALL_ITEM_BYTES
        starts_block = not small or end - small[0].offset > BLOCK_BYTES
        if not is_small or starts_block or item.offset > position:
            close_small()
        spans.extend(_unclaimed(position, item.offset))
        if is_small:
            small.append(item)
        else:
            spans.append(Span(item.offset, end, (item,)))
        position = end
    close_small()
    spans.extend(_unclaimed(position, length_bytes))
    return spans, overlapping


def _unclaimed(start: int, end: int) -> Iterator[Span]:
    if start < end:
        yield Span(start, end, ())
