"""Every byte of a shard is read exactly once, whatever its items look like."""

from hypothesis import given
from hypothesis import strategies as st

from ckptguard.model.layout import Item, ItemKind
from ckptguard.scan.spans import BLOCK_BYTES, SMALL_ITEM_BYTES, plan_spans

LENGTHS = st.integers(0, 2000) | st.sampled_from(
    [SMALL_ITEM_BYTES - 1, SMALL_ITEM_BYTES, SMALL_ITEM_BYTES + 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 7]
)


def items_at(extents: list[tuple[int, int]]) -> list[Item]:
    ordered = sorted(extents)
    return [
        Item(fqn=f"t{index}", kind=ItemKind.TENSOR, offset=offset, length_bytes=length)
        for index, (offset, length) in enumerate(ordered)
    ]


@given(st.lists(st.tuples(st.integers(0, 500), LENGTHS), max_size=40), st.integers(0, 3000))
def test_spans_cover_every_byte_once_and_keep_every_item(
    gaps_and_lengths: list[tuple[int, int]], tail: int
) -> None:
    extents, position = [], 0
    for gap, length in gaps_and_lengths:
        extents.append((position + gap, length))
        position += gap + length
    items = items_at(extents)
    spans, overlapping = plan_spans(items, position + tail)
    assert overlapping == []
    edges = [0] + [span.end for span in spans]
    assert [span.start for span in spans] == edges[:-1]
    assert edges[-1] == position + tail or not spans
    assert [item for span in spans for item in span.items] == items


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), max_size=40), st.integers(0, 6000))
def test_items_that_overlap_or_reach_beyond_the_end_never_make_a_byte_read_twice(
    extents: list[tuple[int, int]], length_bytes: int
) -> None:
    items = items_at(extents)
    spans, overlapping = plan_spans(items, length_bytes)
    assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
    assert sum(span.end - span.start for span in spans) == length_bytes
    placed = [item for span in spans for item in span.items]
    beyond = [item for item in items if item.offset + item.length_bytes > length_bytes]
    assert sorted(placed + overlapping + beyond) == sorted(items)


def test_small_items_share_a_read_and_large_ones_get_their_own() -> None:
    lengths = [1000, 1000, SMALL_ITEM_BYTES + 1, 1000]
    offsets = [sum(lengths[:index]) for index in range(len(lengths))]
    spans, _ = plan_spans(items_at(list(zip(offsets, lengths, strict=True))), sum(lengths))
    assert [len(span.items) for span in spans] == [2, 1, 1]
    assert all(span.end - span.start <= BLOCK_BYTES or len(span.items) == 1 for span in spans)
