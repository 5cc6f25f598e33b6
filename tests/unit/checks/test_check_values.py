"""Numerics, profile, second looks, and the bound on findings."""

import math

import pytest

from ckptguard.checks.bounded import MAX_FINDINGS_PER_KIND, bounded
from ckptguard.checks.numerics import check_numerics
from ckptguard.checks.profile import check_profile
from ckptguard.checks.settle import MAY_SETTLE, confirm, needs_second_look, needs_time
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout, Tensor
from ckptguard.model.policy import NumericsMode
from ckptguard.model.report import TensorNumerics
from ckptguard.model.verdict import CheckStatus, conclude


def _values(minimum: float, maximum: float, *, is_denormal: bool = False) -> TensorNumerics:
    return TensorNumerics(
        minimum=minimum,
        maximum=maximum,
        is_finite=math.isfinite(minimum) and math.isfinite(maximum),
        is_zero=minimum == maximum == 0,
        is_denormal=is_denormal,
    )


NAN, MASK, ZERO, NORMAL = (
    _values(math.nan, math.nan),
    _values(-math.inf, -math.inf),
    _values(0, 0),
    _values(-1, 2),
)


@pytest.mark.parametrize(("values", "what"), [(NAN, "NaN"), (MASK, "infinity")])
def test_legal_masks_and_placeholders_are_an_info_by_default(values: TensorNumerics, what: str) -> None:
    (finding,) = check_numerics({"w": values}, NumericsMode.REPORT)
    assert (finding.code, finding.severity) == (FindingCode.NON_FINITE, Severity.INFO)
    assert finding.message == f"w: holds {what}"
    assert conclude(CheckName.NUMERICS, [finding]).status is CheckStatus.PASS


def test_enforced_non_finite_values_are_a_matter_of_policy() -> None:
    (finding,) = check_numerics({"w": NAN}, NumericsMode.ENFORCE)
    assert (finding.severity, finding.basis) == (Severity.ERROR, Basis.POLICY)


def test_off_says_nothing() -> None:
    assert check_numerics({"w": NAN}, NumericsMode.OFF) == ()


def test_zero_is_an_info_and_denormal_a_warning() -> None:
    tiny = _values(1e-42, 1e-42, is_denormal=True)
    findings = check_numerics({"a": ZERO, "b": tiny, "c": NORMAL}, NumericsMode.ENFORCE)
    assert [(finding.code, finding.severity, finding.fqn) for finding in findings] == [
        (FindingCode.ALL_ZERO, Severity.INFO, "a"),
        (FindingCode.ALL_DENORMAL, Severity.WARNING, "b"),
    ]


def test_values_that_were_finite_at_the_last_valid_step_are_a_warning() -> None:
    (finding,) = check_numerics({"w": NAN}, NumericsMode.REPORT, baseline={"w": NORMAL})
    assert finding.severity is Severity.WARNING
    assert finding.message == "w: holds NaN, and held none at the last VALID step"


def test_a_mask_that_was_there_before_stays_an_info() -> None:
    (finding,) = check_numerics({"w": MASK}, NumericsMode.REPORT, baseline={"w": MASK})
    assert finding.severity is Severity.INFO


def test_a_jump_against_the_last_valid_step_is_a_warning() -> None:
    (finding,) = check_numerics({"w": _values(-3000, 1)}, NumericsMode.REPORT, baseline={"w": NORMAL})
    assert (finding.code, finding.severity) == (FindingCode.VALUE_JUMP, Severity.WARNING)
    assert "from 2 at the last VALID step to 3e+03" in finding.message


def test_ordinary_growth_and_a_start_from_zero_are_no_jump() -> None:
    grown, begun = {"w": _values(-20, 20)}, {"w": NORMAL}
    assert check_numerics(grown, NumericsMode.REPORT, baseline={"w": NORMAL}) == ()
    assert check_numerics(begun, NumericsMode.REPORT, baseline={"w": ZERO}) == ()


def _layout() -> Layout:
    return Layout(
        format="dcp",
        tensors=tuple(Tensor(fqn, "float32", (), ()) for fqn in ("model.a.weight", "model.b[0]")),
        objects=("train.step",),
    )


def test_every_required_pattern_that_matches_nothing_is_told() -> None:
    required = ("model.*.weight", "train.step", "optim.*", "model.b[0]", "MODEL.*")
    findings = check_profile([_layout()], required)
    assert [finding.fqn for finding in findings] == ["optim.*", "MODEL.*"]
    assert {(finding.code, finding.basis) for finding in findings} == {
        (FindingCode.MISSING_TENSOR, Basis.POLICY)
    }


def test_a_name_may_stand_in_any_part() -> None:
    optimizer = Layout(format="dcp", tensors=(Tensor("optim.w", "float32", (), ()),))
    assert check_profile([_layout(), optimizer], ("optim.*", "model.*")) == ()


def _missing(observed: str = "no such file", file: str = "a") -> Finding:
    return Finding(
        code=FindingCode.MISSING_SHARD,
        check=CheckName.EXISTENCE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message="missing",
        file=file,
        observed=observed,
    )


def test_whatever_condemns_is_looked_at_twice_and_what_time_can_heal_after_a_while() -> None:
    assert needs_second_look([_missing()])
    assert needs_time([_missing()])
    assert not needs_second_look([])
    hole = Finding(
        code=FindingCode.COVERAGE_HOLE,
        check=CheckName.COVERAGE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message="hole",
    )
    assert needs_second_look([hole])
    assert not needs_time([hole])
    assert FindingCode.NOT_COMMITTED in MAY_SETTLE


def test_what_is_seen_twice_is_confirmed() -> None:
    assert confirm([_missing()], [_missing()]) == (_missing(),)


def test_what_went_away_is_gone() -> None:
    assert confirm([_missing()], []) == ()


@pytest.mark.parametrize("second", [_missing(observed="90 bytes"), _missing(file="b")])
def test_what_still_moves_is_in_doubt_and_worth_another_try(second: Finding) -> None:
    (finding,) = confirm([_missing()], [second])
    assert (finding.severity, finding.basis, finding.is_retryable) == (Severity.UNKNOWN, None, True)


def test_the_bound_keeps_the_verdict_and_counts_the_rest() -> None:
    many = [_missing(file=str(index)) for index in range(MAX_FINDINGS_PER_KIND + 5)]
    kept = bounded(iter(many))
    assert kept[:-1] == tuple(many[:MAX_FINDINGS_PER_KIND])
    assert (kept[-1].severity, kept[-1].basis) == (Severity.ERROR, Basis.DAMAGE)
    assert kept[-1].message == "and 5 more findings of this kind (missing_shard)"


def test_the_bound_counts_each_kind_by_itself() -> None:
    doubt = Finding(
        code=FindingCode.MISSING_SHARD, check=CheckName.EXISTENCE, severity=Severity.UNKNOWN, message="?"
    )
    assert bounded([_missing(), doubt, _missing(file="b")], limit=1)[:2] == (_missing(), doubt)
