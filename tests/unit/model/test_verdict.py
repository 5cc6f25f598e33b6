"""The one function that derives the verdict, and how a check concludes (design §3)."""

import pytest

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.verdict import (
    CAPPING_CODES,
    Assurance,
    CheckResult,
    CheckStatus,
    Judgement,
    Verdict,
    conclude,
    derive_judgement,
    skipped,
)

STRUCTURE = (CheckName.EXISTENCE, CheckName.BYTE_COUNT, CheckName.COVERAGE)


def _finding(
    severity: Severity,
    *,
    basis: Basis = Basis.DAMAGE,
    code: FindingCode = FindingCode.SHORT_SHARD,
    is_retryable: bool = False,
) -> Finding:
    return Finding(
        code=code,
        check=CheckName.CONTENT,
        severity=severity,
        message=f"a {severity} of {code}",
        basis=basis if severity is Severity.ERROR else None,
        is_retryable=is_retryable,
    )


def _passed(*names: CheckName) -> list[CheckResult]:
    return [conclude(name, ()) for name in names]


def test_an_error_has_a_basis_and_nothing_else_has() -> None:
    with pytest.raises(ValueError, match="exactly error findings"):
        Finding(
            code=FindingCode.SHORT_SHARD,
            check=CheckName.BYTE_COUNT,
            severity=Severity.ERROR,
            message="no basis",
        )
    with pytest.raises(ValueError, match="exactly error findings"):
        Finding(
            code=FindingCode.SHORT_SHARD,
            check=CheckName.BYTE_COUNT,
            severity=Severity.WARNING,
            basis=Basis.DAMAGE,
            message="a warning does not condemn",
        )


@pytest.mark.parametrize("severity", [Severity.ERROR, Severity.UNKNOWN])
def test_a_pass_cannot_hold_an_error_or_a_doubt(severity: Severity) -> None:
    with pytest.raises(ValueError, match="a pass with"):
        CheckResult(name=CheckName.CONTENT, status=CheckStatus.PASS, findings=(_finding(severity),))


@pytest.mark.parametrize("status", [CheckStatus.UNKNOWN, CheckStatus.SKIPPED])
def test_an_error_finding_cannot_hide_behind_another_status(status: CheckStatus) -> None:
    with pytest.raises(ValueError, match="ends `fail`"):
        CheckResult(name=CheckName.CONTENT, status=status, findings=(_finding(Severity.ERROR),))


def test_a_failed_check_without_an_error_anywhere_is_a_doubt_for_good() -> None:
    load = CheckResult(name=CheckName.LOAD, status=CheckStatus.FAIL, reason="2 items did not load")
    results = [*_passed(*STRUCTURE, CheckName.CONTENT), load]
    assert derive_judgement(results) == Judgement(verdict=Verdict.UNKNOWN)


def test_nothing_checked_is_unknown_and_not_retryable() -> None:
    assert derive_judgement([]) == Judgement(verdict=Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("passed", "assurance"),
    [
        (STRUCTURE, Assurance.STRUCTURE),
        ((*STRUCTURE, CheckName.CONTENT), Assurance.CONTENT),
        ((*STRUCTURE, CheckName.CONTENT, CheckName.LOAD), Assurance.LOADED),
        ((*STRUCTURE, CheckName.CONTENT, CheckName.LOAD, CheckName.PROBE), Assurance.RESUMABLE),
    ],
)
def test_assurance_is_the_highest_with_all_below_it(
    passed: tuple[CheckName, ...], assurance: Assurance
) -> None:
    assert derive_judgement(_passed(*passed)) == Judgement(verdict=Verdict.VALID, assurance=assurance)


def test_a_load_without_content_is_no_more_than_structure() -> None:
    judgement = derive_judgement(_passed(*STRUCTURE, CheckName.LOAD, CheckName.PROBE))
    assert judgement.assurance is Assurance.STRUCTURE


@pytest.mark.parametrize("missing", STRUCTURE)
def test_without_one_structure_check_nothing_is_valid(missing: CheckName) -> None:
    others = [name for name in CheckName if name is not missing]
    assert derive_judgement(_passed(*others)).verdict is Verdict.UNKNOWN
    with_skip = [*_passed(*others), skipped(missing, "not asked for")]
    assert derive_judgement(with_skip).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("code", sorted(CAPPING_CODES))
def test_what_a_format_cannot_prove_caps_and_does_not_condemn(code: FindingCode) -> None:
    content = conclude(CheckName.CONTENT, [_finding(Severity.WARNING, code=code)])
    assert content.status is CheckStatus.UNKNOWN
    judgement = derive_judgement([*_passed(*STRUCTURE, CheckName.LOAD), content])
    assert judgement == Judgement(verdict=Verdict.VALID, assurance=Assurance.STRUCTURE)


def test_a_plain_warning_does_not_cap() -> None:
    content = conclude(CheckName.CONTENT, [_finding(Severity.WARNING, code=FindingCode.OBJECT_NOT_BUILT)])
    assert content.status is CheckStatus.PASS


@pytest.mark.parametrize(
    ("bases", "gravest"),
    [
        ([Basis.POLICY], Basis.POLICY),
        ([Basis.POLICY, Basis.DAMAGE], Basis.DAMAGE),
        ([Basis.POLICY, Basis.DAMAGE, Basis.UNSAFE], Basis.UNSAFE),
    ],
)
def test_the_gravest_basis_is_told(bases: list[Basis], gravest: Basis) -> None:
    content = conclude(CheckName.CONTENT, [_finding(Severity.ERROR, basis=basis) for basis in bases])
    assert derive_judgement([content]) == Judgement(verdict=Verdict.INVALID, basis=gravest)


def test_an_error_outweighs_a_doubt() -> None:
    content = conclude(CheckName.CONTENT, [_finding(Severity.UNKNOWN), _finding(Severity.ERROR)])
    assert content.status is CheckStatus.FAIL
    assert content.reason == "a error of short_shard"
    assert derive_judgement([*_passed(*STRUCTURE), content]).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("retryable", "expected"),
    [([True], True), ([True, True], True), ([True, False], False), ([False], False)],
)
def test_unknown_is_retryable_only_if_every_doubt_is(retryable: list[bool], expected: bool) -> None:  # noqa: FBT001 - a table of cases
    doubts = [_finding(Severity.UNKNOWN, is_retryable=flag) for flag in retryable]
    judgement = derive_judgement([*_passed(*STRUCTURE), conclude(CheckName.CONTENT, doubts)])
    assert judgement == Judgement(verdict=Verdict.UNKNOWN, is_retryable=expected)


def test_two_results_for_one_check_are_refused() -> None:
    with pytest.raises(ValueError, match="more than one result"):
        derive_judgement(_passed(CheckName.CONTENT, CheckName.CONTENT))


def test_infos_change_nothing() -> None:
    result = conclude(CheckName.CONTENT, [_finding(Severity.INFO)])
    assert result.status is CheckStatus.PASS
    assert result.reason == ""
