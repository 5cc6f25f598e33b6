"""Hypothesis strategies for the product's values: tilings, layouts, findings.

Hypothesis is imported by the functions, not by the module: the kit is usable without it.
"""

from itertools import pairwise, product
from typing import TYPE_CHECKING, Final

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard, Slice, Tensor

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

_DTYPES: Final = ("float32", "bfloat16", "int64", "bool", "float8_e4m3fn")
_FQN_PATTERN: Final = r"[a-z]{1,8}(\.[a-z0-9_]{1,8}){0,3}"
_MIN_ITEM_BYTES: Final = 64
"""No item of a DCP shard is shorter than the zip it is."""


def fqns() -> "SearchStrategy[str]":
    """Draw names of tensors, `model.layers.0`."""
    from hypothesis import strategies as st  # noqa: PLC0415 - hypothesis late

    return st.from_regex(_FQN_PATTERN, fullmatch=True)


def shapes(*, max_dims: int = 3, max_size: int = 12) -> "SearchStrategy[tuple[int, ...]]":
    """Draw shapes, in elements; scalars and empty tensors are among them."""
    from hypothesis import strategies as st  # noqa: PLC0415 - hypothesis late

    return st.lists(st.integers(0, max_size), max_size=max_dims).map(tuple)


def tilings(shape: tuple[int, ...]) -> "SearchStrategy[tuple[Slice, ...]]":
    """Draw slices that tile a shape exactly: a grid, in any order, empty slices among them."""
    from hypothesis import strategies as st  # noqa: PLC0415 - hypothesis late

    cuts = [st.lists(st.integers(0, size), max_size=3) for size in shape]
    return st.tuples(*cuts).flatmap(lambda chosen: st.permutations(_grid(shape, chosen))).map(tuple)


def _grid(shape: tuple[int, ...], cuts: tuple[list[int], ...]) -> list[Slice]:
    """Return the cells of a grid; a cut at the far edge, or drawn twice, makes an empty cell.

    One cell per corner, the largest: metadata is keyed by FQN and offsets (`MetadataIndex`,
    torch 2.13), so an empty slice gives way to the one that begins where it does.
    """
    edges = [sorted([0, *chosen, size]) for size, chosen in zip(shape, cuts, strict=True)]
    cells = product(*(pairwise(edge) for edge in edges))
    slices = (Slice(tuple(low for low, _ in cell), tuple(high - low for low, high in cell)) for cell in cells)
    return list({part.offsets: part for part in slices}.values())


def tensors() -> "SearchStrategy[Tensor]":
    """Draw a declared tensor that its slices tile."""
    from hypothesis import strategies as st  # noqa: PLC0415 - hypothesis late

    @st.composite
    def build(draw: "DrawFn") -> Tensor:
        shape = draw(shapes())
        return Tensor(
            fqn=draw(fqns()),
            dtype=draw(st.sampled_from(_DTYPES)),
            shape=shape,
            slices=draw(tilings(shape)),
        )

    return build()


def layouts(*, max_tensors: int = 5, max_shards: int = 4) -> "SearchStrategy[Layout]":
    """Draw a whole DCP layout: every slice has one item, items fill their shards without gap."""
    from hypothesis import strategies as st  # noqa: PLC0415 - hypothesis late

    @st.composite
    def build(draw: "DrawFn") -> Layout:
        declared = draw(st.lists(tensors(), max_size=max_tensors, unique_by=lambda tensor: tensor.fqn))
        objects = draw(st.lists(fqns(), max_size=3, unique=True))
        names = [fqn for fqn in objects if fqn not in {tensor.fqn for tensor in declared}]
        num_shards = draw(st.integers(1, max_shards))
        bare = [
            *(Item(t.fqn, ItemKind.TENSOR, 0, 0, t.dtype, part) for t in declared for part in t.slices),
            *(Item(fqn, ItemKind.BYTES, 0, 0) for fqn in names),
        ]
        places = [(draw(st.integers(0, num_shards - 1)), draw(st.integers(0, 500))) for _ in bare]
        return Layout(
            format="dcp",
            shards=_fill_shards(bare, places),
            tensors=tuple(sorted(declared, key=lambda tensor: tensor.fqn)),
            objects=tuple(sorted(names)),
        )

    return build()


def _fill_shards(items: list[Item], places: list[tuple[int, int]]) -> tuple[Shard, ...]:
    """Lay items one behind the other, each in its shard; room is what exceeds their elements' bytes."""
    held: dict[int, list[Item]] = {}
    for item, (shard, room) in zip(items, places, strict=True):
        before = held.setdefault(shard, [])
        offset = before[-1].offset + before[-1].length_bytes if before else 0
        before.append(item._replace(offset=offset, length_bytes=_least_bytes(item) + room))
    return tuple(
        Shard(
            path=f"__{rank}_0.distcp",
            encoding=Encoding.TORCH_ZIP_ITEMS,
            items=tuple(inside),
            min_length_bytes=inside[-1].offset + inside[-1].length_bytes,
        )
        for rank, inside in sorted(held.items())
    )


def _least_bytes(item: Item) -> int:
    """Return enough for a zip and its elements, 16 bytes each at most."""
    elements = 1
    for size in item.slice.sizes if item.slice else (0,):
        elements *= size
    return _MIN_ITEM_BYTES + 16 * elements


def findings(*, severity: Severity | None = None) -> "SearchStrategy[Finding]":
    """Draw findings that obey the law of basis and severity.

    Args:
        severity: Only of this one.
    """
    from hypothesis import strategies as st  # noqa: PLC0415 - hypothesis late

    @st.composite
    def build(draw: "DrawFn") -> Finding:
        chosen = severity if severity is not None else draw(st.sampled_from(Severity))
        return Finding(
            code=draw(st.sampled_from(FindingCode)),
            check=draw(st.sampled_from(CheckName)),
            severity=chosen,
            message=draw(st.text(min_size=1, max_size=40)),
            basis=draw(st.sampled_from(Basis)) if chosen is Severity.ERROR else None,
            file=draw(st.none() | st.just("__0_0.distcp")),
            fqn=draw(st.none() | fqns()),
            offset=draw(st.none() | st.integers(0, 2**40)),
            length_bytes=draw(st.none() | st.integers(0, 2**40)),
            is_retryable=draw(st.booleans()),
        )

    return build()
