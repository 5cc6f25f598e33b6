"""Coverage is exact: on small grids it agrees with painting every cell."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptguard.checks.coverage import check_coverage
from ckptguard.checks.tiling import Box, Budget, box_of, is_overlapping, judge_tiling, slice_of, subtract
from ckptguard.model.finding import FindingCode, Severity
from ckptguard.model.layout import Layout, Slice, Tensor

Cell = tuple[int, ...]
MAX_DIM = 5


@st.composite
def _shapes(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, MAX_DIM), min_size=1, max_size=3)))


@st.composite
def _slices(draw: st.DrawFn, shape: tuple[int, ...]) -> Slice:
    offsets = tuple(draw(st.integers(0, dim)) for dim in shape)
    sizes = tuple(draw(st.integers(0, dim - offset)) for dim, offset in zip(shape, offsets, strict=True))
    return Slice(offsets, sizes)


@st.composite
def _random_tensors(draw: st.DrawFn) -> Tensor:
    """Any slices inside any shape: mostly holes and overlaps."""
    shape = draw(_shapes())
    return Tensor("w", "float32", shape, tuple(draw(st.lists(_slices(shape), max_size=7))))


@st.composite
def _split_tensors(draw: st.DrawFn) -> Tensor:
    """An exact tiling by nested random cuts, then perhaps one slice dropped, doubled or moved."""
    shape = draw(_shapes())
    slices = [Slice((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 8))):
        victim = slices.pop(draw(st.integers(0, len(slices) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        at = draw(st.integers(0, victim.sizes[axis]))
        slices += _cut(victim, axis, at)
    edit = draw(st.sampled_from(("nothing", "drop", "double", "move")))
    chosen = draw(st.integers(0, len(slices) - 1))
    if edit == "drop":
        del slices[chosen]
    elif edit == "double":
        slices.append(slices[chosen])
    elif edit == "move":
        slices[chosen] = draw(_slices(shape))
    return Tensor("w", "float32", shape, tuple(draw(st.permutations(slices))))


def _cut(part: Slice, axis: int, at: int) -> list[Slice]:
    first, second = list(part.sizes), list(part.sizes)
    offsets = list(part.offsets)
    first[axis], second[axis] = at, part.sizes[axis] - at
    offsets[axis] += at
    return [Slice(part.offsets, tuple(first)), Slice(tuple(offsets), tuple(second))]


def _cells(part: Slice) -> set[Cell]:
    ranges = (range(offset, offset + size) for offset, size in zip(part.offsets, part.sizes, strict=True))
    return set(product(*ranges))


def _paint(tensor: Tensor) -> tuple[set[Cell], set[Cell]]:
    """Return the cells that no slice covers, and those that distinct slices cover twice."""
    painted: set[Cell] = set()
    twice: set[Cell] = set()
    for part in dict.fromkeys(tensor.slices):
        twice |= painted & _cells(part)
        painted |= _cells(part)
    return _cells(Slice((0,) * len(tensor.shape), tensor.shape)) - painted, twice


def _judge(tensor: Tensor, *, is_rank_local: bool = False) -> dict[FindingCode, set[Cell]]:
    found: dict[FindingCode, set[Cell]] = {
        FindingCode.COVERAGE_HOLE: set(),
        FindingCode.COVERAGE_OVERLAP: set(),
    }
    for finding in check_coverage([Layout(format="dcp", tensors=(tensor,), is_rank_local=is_rank_local)]):
        if finding.severity is Severity.ERROR and finding.slice_offsets is not None:
            assert finding.slice_sizes is not None
            found[finding.code] |= _cells(Slice(finding.slice_offsets, finding.slice_sizes))
    return found


def _holes(tensor: Tensor) -> list[Slice]:
    region = Box((0,) * len(tensor.shape), tensor.shape)
    distinct = dict.fromkeys(part for part in tensor.slices if 0 not in part.sizes)
    tiling = judge_tiling(region, [box_of(part) for part in distinct], Budget(10**6))
    return [slice_of(hole.where) for hole in tiling.holes]


@settings(max_examples=400, deadline=None)
@given(st.one_of(_random_tensors(), _split_tensors()))
def test_holes_are_exactly_the_unpainted_cells(tensor: Tensor) -> None:
    unpainted, _ = _paint(tensor)
    holes = _holes(tensor)
    assert set().union(*map(_cells, holes)) == unpainted
    assert sum(len(_cells(hole)) for hole in holes) == len(unpainted)


@settings(max_examples=400, deadline=None)
@given(st.one_of(_random_tensors(), _split_tensors()))
def test_an_overlap_is_told_exactly_where_distinct_slices_share_a_cell(tensor: Tensor) -> None:
    unpainted, twice = _paint(tensor)
    found = _judge(tensor)
    assert bool(found[FindingCode.COVERAGE_OVERLAP]) == bool(twice)
    assert found[FindingCode.COVERAGE_OVERLAP] <= twice
    assert bool(found[FindingCode.COVERAGE_HOLE]) == bool(unpainted)


@settings(max_examples=100, deadline=None)
@given(_split_tensors())
def test_rank_local_metadata_has_overlaps_and_no_holes(tensor: Tensor) -> None:
    _, twice = _paint(tensor)
    found = _judge(tensor, is_rank_local=True)
    assert not found[FindingCode.COVERAGE_HOLE]
    assert bool(found[FindingCode.COVERAGE_OVERLAP]) == bool(twice)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_subtracted_and_what_is_left_make_the_whole(data: st.DataObject) -> None:
    shape = data.draw(_shapes())
    boxes = [box_of(data.draw(_slices(shape).filter(lambda part: 0 not in part.sizes))) for _ in range(2)]
    left = list(subtract(*boxes))
    cells = [_cells(slice_of(box)) for box in left]
    assert set().union(*cells) == _cells(slice_of(boxes[0])) - _cells(slice_of(boxes[1]))
    assert not any(is_overlapping(one, other) for one in left for other in left if one is not other)
