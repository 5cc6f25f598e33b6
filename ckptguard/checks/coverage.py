"""Check 3, tensors: do the slices of every tensor tile it?

torch asks this at save time only, and skips the volume when one process saves; a load
never asks. A hole then loads as whatever the memory held before, without an error
(`_validate_global_plan` and `create_read_items_for_chunk_list`, torch 2.13,
distributed/checkpoint/default_planner.py and planner_helpers.py).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Final

from ckptguard.checks.bounded import bounded
from ckptguard.checks.items import check_items
from ckptguard.checks.phrases import slice_in_words
from ckptguard.checks.tiling import (
    MAX_OVERLAPS,
    Box,
    Budget,
    Hole,
    Tiling,
    box_of,
    judge_tiling,
    slice_of,
)
from ckptguard.errors import LimitExceededError
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout, Slice, Tensor

LOOKS_PER_SLICE: Final = 64
"""Nested sharding needs levels x dimensions of them, below 16 for any real mesh."""
LOOKS_AT_LEAST: Final = 10_000_000
MAX_HOLES: Final = 8
"""Holes of one tensor that are told one by one."""

_error = partial(Finding, check=CheckName.COVERAGE, severity=Severity.ERROR, basis=Basis.DAMAGE)
_warning = partial(Finding, check=CheckName.COVERAGE, severity=Severity.WARNING)


def check_coverage(layouts: Sequence[Layout]) -> tuple[Finding, ...]:
    """Report every tensor that its slices do not tile, and every item or slice without its other half.

    A rank-local layout describes one rank's slices: bounds and overlaps are judged,
    holes are not, and `rank_local_metadata` caps the assurance.

    Args:
        layouts: All parts of one checkpoint.

    Returns:
        Findings of check 3, bounded per kind; empty if every tensor is tiled exactly.

    Cost: a microsecond per tensor of one whole slice, 3 per item; see `judge_tiling` for the rest.
    """
    return tuple(finding for layout in layouts for finding in _check_layout(layout))


def check_rank_local(layouts: Sequence[Layout]) -> tuple[Finding, ...]:
    """Warn that rank-local metadata cannot say which ranks should be here.

    The warning belongs to check 4, so that a checkpoint which is otherwise whole stays
    VALID at `structure` (design §5).
    """
    ranks = [layout for layout in layouts if layout.is_rank_local]
    if not ranks:
        return ()
    file = next((metadata.path for layout in ranks for metadata in layout.metadata_files), None)
    return (
        Finding(
            code=FindingCode.RANK_LOCAL_METADATA,
            check=CheckName.CONTENT,
            severity=Severity.WARNING,
            message=f"metadata of {len(ranks)} ranks, each about itself: every record here can match and"
            " still nothing says which other ranks should be here",
            file=file,
            observed=f"{len(ranks)} rank-local metadata files",
        ),
    )


def _check_layout(layout: Layout) -> tuple[Finding, ...]:
    num_slices = sum(len(tensor.slices) for tensor in layout.tensors)
    budget = Budget(LOOKS_AT_LEAST + LOOKS_PER_SLICE * num_slices)
    suspects = (tensor for tensor in layout.tensors if not _is_whole(tensor))
    tensors = (check_tensor(tensor, budget, is_whole=not layout.is_rank_local) for tensor in suspects)
    return bounded(chain(chain.from_iterable(tensors), check_items(layout)))


def _is_whole(tensor: Tensor) -> bool:
    """Say whether one slice covers everything: true for most tensors, and worth a fast answer."""
    slices = tensor.slices
    if len(slices) != 1:
        return False
    offsets, sizes = slices[0]
    return sizes == tensor.shape and len(offsets) == len(sizes) and not any(offsets)


def check_tensor(tensor: Tensor, budget: Budget, *, is_whole: bool = True) -> Iterator[Finding]:
    """Yield every way in which the slices of one tensor fail to tile it.

    A slice of size 0 may stand anywhere inside, also at the very end (`offset == dim`):
    FSDP2 writes one for each rank that has nothing left of an uneven tensor.

    Args:
        tensor: Shape and slices, in elements.
        budget: Shared by all tensors of a layout; spent: UNKNOWN(`limit_exceeded`).
        is_whole: The slices should cover all of it; False where ranks keep their own metadata.
    """
    inside = [part for part in tensor.slices if _is_inside(tensor.shape, part)]
    if len(inside) != len(tensor.slices):
        yield from _outside(tensor)
    # Sorted, not hashed: a hostile writer can choose integers whose hashes collide.
    copies = [list(group) for _, group in groupby(sorted(part for part in inside if 0 not in part.sizes))]
    yield from (_repeated(tensor, group) for group in copies if len(group) > 1)
    if 0 in tensor.shape:
        return
    region = Box((0,) * len(tensor.shape), tensor.shape)
    try:
        tiling = judge_tiling(region, [box_of(group[0]) for group in copies], budget)
    except LimitExceededError as error:
        yield _undecided(tensor, str(error))
        return
    yield from _overlapping(tensor, tiling)
    if is_whole:
        yield from _holes(tensor, tiling)


def _is_inside(shape: tuple[int, ...], part: Slice) -> bool:
    return len(part.offsets) == len(part.sizes) == len(shape) and all(
        offset >= 0 and size >= 0 and offset + size <= dim
        for offset, size, dim in zip(part.offsets, part.sizes, shape, strict=True)
    )


def _outside(tensor: Tensor) -> Iterator[Finding]:
    for part in tensor.slices:
        if _is_inside(tensor.shape, part):
            continue
        yield _error(
            code=FindingCode.SLICE_OUT_OF_BOUNDS,
            message=f"{tensor.fqn}: a slice at {list(part.offsets)} of sizes {list(part.sizes)}"
            f" does not fit into shape {list(tensor.shape)}",
            fqn=tensor.fqn,
            slice_offsets=part.offsets,
            slice_sizes=part.sizes,
            expected=f"inside {list(tensor.shape)}",
            observed=f"offsets {list(part.offsets)}, sizes {list(part.sizes)}",
        )


def _repeated(tensor: Tensor, copies: Sequence[Slice]) -> Finding:
    """Warn of a slice listed several times: a load reads the same item again, and is right.

    torch's planner lists each replica once (`dedup_save_plans` before
    `create_default_global_save_plan`), so this is a foreign writer's, or an edit.
    """
    part = copies[0]
    return _warning(
        code=FindingCode.COVERAGE_OVERLAP,
        message=f"{tensor.fqn}: {slice_in_words(tensor.shape, part)} listed {len(copies)} times,"
        " as the same slice; a load reads it again and gets the same",
        fqn=tensor.fqn,
        slice_offsets=part.offsets,
        slice_sizes=part.sizes,
        expected="listed once",
        observed=f"listed {len(copies)} times",
    )


def _overlapping(tensor: Tensor, tiling: Tiling) -> Iterator[Finding]:
    for one, other in tiling.overlaps[:MAX_OVERLAPS]:
        shared = slice_of(
            Box(
                tuple(map(max, one.low, other.low)),
                tuple(map(min, one.high, other.high)),
            )
        )
        yield _error(
            code=FindingCode.COVERAGE_OVERLAP,
            message=f"{tensor.fqn}: {slice_in_words(tensor.shape, shared)} covered by two slices;"
            " which one a load keeps is chance",
            fqn=tensor.fqn,
            slice_offsets=shared.offsets,
            slice_sizes=shared.sizes,
            expected="one slice",
            observed=f"slices at {list(one.low)} and at {list(other.low)}",
        )


def _holes(tensor: Tensor, tiling: Tiling) -> Iterator[Finding]:
    holes = sorted(tiling.holes)
    for hole in holes[:MAX_HOLES]:
        yield _hole(tensor, hole)
    rest = holes[MAX_HOLES:]
    if rest:
        yield _error(
            code=FindingCode.COVERAGE_HOLE,
            message=f"{tensor.fqn}: {len(rest)} more holes, together"
            f" {sum(hole.num_elements for hole in rest)} elements",
            fqn=tensor.fqn,
        )


def _hole(tensor: Tensor, hole: Hole) -> Finding:
    where = slice_of(hole.where)
    within = "" if hole.num_elements == hole.where.volume else f"{hole.num_elements} elements within "
    return _error(
        code=FindingCode.COVERAGE_HOLE,
        message=f"{tensor.fqn}: {within}{slice_in_words(tensor.shape, where)} covered by no slice;"
        " a load leaves there whatever the memory held",
        fqn=tensor.fqn,
        slice_offsets=where.offsets,
        slice_sizes=where.sizes,
        expected=f"{hole.num_elements} elements",
        observed="no slice",
    )


def _undecided(tensor: Tensor, reason: str) -> Finding:
    return Finding(
        code=FindingCode.LIMIT_EXCEEDED,
        check=CheckName.COVERAGE,
        severity=Severity.UNKNOWN,
        message=f"{tensor.fqn}: {len(tensor.slices)} {reason}",
        fqn=tensor.fqn,
        expected=f"at most {LOOKS_PER_SLICE} looks per slice",
        observed="more",
    )
