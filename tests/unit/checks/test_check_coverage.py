"""Check 3, tensors: the sentences, the corners, and what stays legal. Exactness is in tests/property."""

from itertools import product

import pytest

from ckptguard.checks.coverage import check_coverage, check_rank_local, check_tensor
from ckptguard.checks.tiling import Budget
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout, Slice, Tensor
from ckptguard.model.verdict import CheckStatus, Verdict, conclude, derive_judgement


def _check(shape: tuple[int, ...], *slices: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[Finding, ...]:
    tensor = Tensor("model.w", "float32", shape, tuple(Slice(*part) for part in slices))
    return check_coverage([Layout(format="dcp", tensors=(tensor,))])


def _rows(*ranges: tuple[int, int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [((start, 0), (stop - start, 32)) for start, stop in ranges]


@pytest.mark.parametrize(
    ("shape", "slices"),
    [
        ((), [((), ())]),
        ((0,), []),
        ((0,), [((0,), (0,))]),
        ((0, 3), [((0, 0), (0, 3))]),
        ((3, 7), [((0, 0), (3, 7)), ((3, 0), (0, 7))]),
        ((2,), [((0,), (1,)), ((1,), (1,)), ((2,), (0,)), ((2,), (0,))]),
        ((5, 3), [((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (1, 3)), ((5, 0), (0, 3))]),
        ((4, 4), [((0, 0), (2, 2)), ((0, 2), (2, 2)), ((2, 0), (2, 2)), ((2, 2), (2, 2))]),
        # A pinwheel: no cut takes it apart.
        ((3, 3), [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))]),
        ((2, 3, 4), [((0, 0, 0), (1, 3, 4)), ((1, 0, 0), (1, 1, 4)), ((1, 1, 0), (1, 2, 4))]),
    ],
)
def test_legal_tilings_say_nothing(
    shape: tuple[int, ...], slices: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    assert _check(shape, *slices) == ()


def test_a_hole_is_told_by_its_rows() -> None:
    (finding,) = _check((64, 32), *_rows((0, 16), (16, 32), (48, 64)))
    assert (finding.code, finding.basis) == (FindingCode.COVERAGE_HOLE, Basis.DAMAGE)
    assert finding.message.startswith("model.w: rows 32..47 covered by no slice")
    assert (finding.fqn, finding.slice_offsets, finding.slice_sizes) == ("model.w", (32, 0), (16, 32))


def test_a_moved_slice_is_one_overlap_and_one_hole() -> None:
    findings = _check((64, 32), *_rows((0, 16), (8, 24), (32, 48), (48, 64)))
    assert [finding.code for finding in findings] == [FindingCode.COVERAGE_OVERLAP, FindingCode.COVERAGE_HOLE]
    assert findings[0].message.startswith("model.w: rows 8..15 covered by two slices")
    assert findings[1].message.startswith("model.w: rows 24..31 covered by no slice")


def test_a_hole_and_an_overlap_of_the_same_volume_do_not_cancel_out() -> None:
    findings = _check((4,), ((0,), (2,)), ((1,), (2,)))
    assert {finding.code for finding in findings} == {FindingCode.COVERAGE_OVERLAP, FindingCode.COVERAGE_HOLE}


def test_a_missing_column_of_a_grid_is_one_hole() -> None:
    grid = [((row, column), (1, 1)) for row in range(10) for column in range(10) if column != 3]
    (finding,) = _check((10, 10), *grid)
    assert finding.message.startswith("model.w: column 3 covered by no slice")


def test_a_missing_middle_of_a_pinwheel_is_one_hole() -> None:
    (finding,) = _check((3, 3), ((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)))
    assert finding.message.startswith("model.w: row 1, column 1 covered by no slice")


def test_a_tensor_without_any_slice_is_a_hole() -> None:
    (finding,) = _check((8, 4))
    assert finding.message.startswith("model.w: all of it covered by no slice")
    (scalar,) = _check(())
    assert scalar.code is FindingCode.COVERAGE_HOLE


def test_many_holes_are_bounded_and_counted() -> None:
    every_other = [((row,), (1,)) for row in range(0, 100, 2)]
    findings = _check((100,), *every_other)
    assert len(findings) == 9
    assert findings[-1].message == "model.w: 42 more holes, together 42 elements"


@pytest.mark.parametrize(
    "part",
    [
        ((60, 0), (5, 32)),
        ((0, 0), (64, 33)),
        ((-1, 0), (4, 32)),
        ((0, 0), (-4, 32)),
        ((0,), (64,)),
        ((65, 0), (0, 32)),
    ],
)
def test_a_slice_outside_its_tensor_is_told(part: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    findings = _check((64, 32), part)
    assert findings[0].code is FindingCode.SLICE_OUT_OF_BOUNDS
    assert (findings[0].slice_offsets, findings[0].slice_sizes) == part


def test_a_slice_listed_twice_is_a_warning_only() -> None:
    (finding,) = _check((4,), ((0,), (2,)), ((0,), (2,)), ((2,), (2,)))
    assert (finding.code, finding.severity) == (FindingCode.COVERAGE_OVERLAP, Severity.WARNING)
    assert "listed 2 times" in finding.message


def test_an_arrangement_that_takes_too_long_is_in_doubt() -> None:
    tensor = Tensor("w", "float32", (99,), tuple(Slice((row,), (1,)) for row in range(99)))
    (finding,) = check_tensor(tensor, Budget(50))
    assert (finding.code, finding.severity) == (FindingCode.LIMIT_EXCEEDED, Severity.UNKNOWN)


def test_a_hostile_staircase_ends_within_the_budget() -> None:
    """Each slice cuts a row or a column off the rest: a cut per slice, quadratic work."""
    slices, top, left, rows, columns = [], 0, 0, 1500, 1500
    while rows > 1 and columns > 1:
        slices.append(Slice((top, left), (1, columns)))
        top, rows = top + 1, rows - 1
        slices.append(Slice((top, left), (rows, 1)))
        left, columns = left + 1, columns - 1
    tensor = Tensor("w", "float32", (1500, 1500), tuple(slices))
    (finding,) = check_tensor(tensor, Budget(100_000))
    assert finding.code is FindingCode.LIMIT_EXCEEDED


def test_rank_local_metadata_stays_valid_at_structure() -> None:
    tensor = Tensor("w", "float32", (8,), (Slice((0,), (2,)),))
    layout = Layout(format="dcp", tensors=(tensor,), is_rank_local=True)
    assert check_coverage([layout]) == ()
    (warning,) = check_rank_local([layout])
    assert warning.check is CheckName.CONTENT
    content = conclude(CheckName.CONTENT, [warning])
    assert content.status is CheckStatus.UNKNOWN
    structure = [
        conclude(name, ()) for name in (CheckName.EXISTENCE, CheckName.BYTE_COUNT, CheckName.COVERAGE)
    ]
    judgement = derive_judgement([*structure, content])
    assert (judgement.verdict, judgement.assurance) == (Verdict.VALID, "structure")


def test_global_metadata_has_no_rank_local_warning() -> None:
    assert check_rank_local([Layout(format="dcp")]) == ()


def test_slices_whose_hashes_collide_cost_no_more_than_others() -> None:
    """Integers that are equal modulo 2**61 - 1 have one hash, and so have tuples of them."""
    prime = 2**61 - 1
    corners = list(product((0, prime), repeat=13))
    slices = tuple(Slice(corner, (prime,) * 13) for corner in corners)
    assert len({hash(part) for part in slices}) == 1
    assert (
        check_coverage([Layout(format="dcp", tensors=(Tensor("w", "int8", (2 * prime,) * 13, slices),))])
        == ()
    )
