"""Laws of the verdict over any findings and any results (docs/invariants.md)."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.verdict import (
    CAPPING_CODES,
    CheckResult,
    CheckStatus,
    Judgement,
    Verdict,
    conclude,
    derive_judgement,
    skipped,
)

STRUCTURE = (CheckName.EXISTENCE, CheckName.BYTE_COUNT, CheckName.COVERAGE)


@st.composite
def _findings(draw: st.DrawFn, severities: tuple[Severity, ...] = tuple(Severity)) -> Finding:
    severity = draw(st.sampled_from(severities))
    basis = draw(st.sampled_from(Basis)) if severity is Severity.ERROR else None
    return Finding(
        code=draw(st.sampled_from(FindingCode)),
        check=draw(st.sampled_from(CheckName)),
        severity=severity,
        basis=basis,
        message=draw(st.text(max_size=5)),
        is_retryable=draw(st.booleans()),
    )


@st.composite
def _results(draw: st.DrawFn) -> list[CheckResult]:
    """Any outcome of any checks: most clean, so that VALID is common."""
    results = []
    for name in draw(st.permutations(list(CheckName))):
        kind = draw(st.sampled_from(("clean", "clean", "clean", "clean", "found", "skipped", "absent")))
        if kind == "clean":
            results.append(conclude(name, ()))
        elif kind == "found":
            results.append(conclude(name, draw(st.lists(_findings(), max_size=4))))
        elif kind == "skipped":
            results.append(skipped(name, "depth not asked for"))
    return results


def _with(results: list[CheckResult], finding: Finding) -> list[CheckResult]:
    """Add a finding to its check, which is concluded anew."""
    before = next((result for result in results if result.name is finding.check), None)
    others = [result for result in results if result is not before]
    return [*others, conclude(finding.check, (*(before.findings if before else ()), finding))]


def _strength(judgement: Judgement) -> int:
    return -1 if judgement.assurance is None else judgement.assurance.rank


@given(_results(), _findings((Severity.ERROR,)))
def test_any_error_makes_invalid(results: list[CheckResult], error: Finding) -> None:
    judgement = derive_judgement(_with(results, error))
    assert judgement.verdict is Verdict.INVALID
    assert judgement.basis is not None
    assert judgement.assurance is None
    assert not judgement.is_retryable


@given(_results(), _findings((Severity.UNKNOWN,)))
def test_any_doubt_excludes_valid(results: list[CheckResult], doubt: Finding) -> None:
    before, after = derive_judgement(results), derive_judgement(_with(results, doubt))
    assert after.verdict is not Verdict.VALID
    assert (after.verdict is Verdict.INVALID) == (before.verdict is Verdict.INVALID)


@given(_results(), st.randoms(use_true_random=False))
def test_the_order_of_checks_and_findings_does_not_matter(results: list[CheckResult], chance: Random) -> None:
    mixed = []
    for result in results:
        findings = list(result.findings)
        chance.shuffle(findings)
        mixed.append(replace(result, findings=tuple(findings)))
    chance.shuffle(mixed)
    assert derive_judgement(mixed) == derive_judgement(results)


@given(_results(), st.sampled_from(CheckName))
def test_losing_a_pass_never_raises_the_assurance(results: list[CheckResult], lost: CheckName) -> None:
    before = derive_judgement(results)
    kept = [result for result in results if result.name is not lost or result.status is not CheckStatus.PASS]
    after = derive_judgement(kept)
    assert _strength(after) <= _strength(before)
    assert (after.verdict is Verdict.INVALID) == (before.verdict is Verdict.INVALID)
    if len(kept) != len(results):
        assert derive_judgement([*kept, skipped(lost, "not read")]) == after


@given(_results(), _findings((Severity.WARNING, Severity.INFO)))
def test_a_warning_never_condemns_and_never_raises(results: list[CheckResult], finding: Finding) -> None:
    was_there = any(
        result.name is finding.check and result.status is not CheckStatus.SKIPPED for result in results
    )
    if not was_there:
        return
    before, after = derive_judgement(results), derive_judgement(_with(results, finding))
    assert (after.verdict is Verdict.INVALID) == (before.verdict is Verdict.INVALID)
    assert _strength(after) <= _strength(before)
    if finding.code not in CAPPING_CODES or finding.severity is Severity.INFO:
        assert after == before


@given(_results())
def test_valid_means_structure_passed_and_nothing_speaks_against(results: list[CheckResult]) -> None:
    judgement = derive_judgement(results)
    severities = {finding.severity for result in results for finding in result.findings}
    passed = {result.name for result in results if result.status is CheckStatus.PASS}
    is_clean = not severities & {Severity.ERROR, Severity.UNKNOWN}
    assert (judgement.verdict is Verdict.VALID) == (is_clean and passed.issuperset(STRUCTURE))
    assert (judgement.assurance is not None) == (judgement.verdict is Verdict.VALID)
    assert (judgement.basis is not None) == (judgement.verdict is Verdict.INVALID)


@given(_results())
def test_only_a_doubt_can_be_retried(results: list[CheckResult]) -> None:
    judgement = derive_judgement(results)
    doubts = [
        finding for result in results for finding in result.findings if finding.severity is Severity.UNKNOWN
    ]
    if judgement.is_retryable:
        assert judgement.verdict is Verdict.UNKNOWN
        assert doubts
        assert all(finding.is_retryable for finding in doubts)


@given(st.sampled_from(CheckName), st.lists(_findings(), max_size=6))
def test_findings_alone_decide_how_a_check_ends(name: CheckName, findings: list[Finding]) -> None:
    result = conclude(name, findings)
    severities = {finding.severity for finding in findings}
    if Severity.ERROR in severities:
        assert result.status is CheckStatus.FAIL
    elif Severity.UNKNOWN in severities or any(
        finding.severity is Severity.WARNING and finding.code in CAPPING_CODES for finding in findings
    ):
        assert result.status is CheckStatus.UNKNOWN
    else:
        assert result.status is CheckStatus.PASS
    assert result.findings == tuple(findings)
    assert (result.reason == "") or result.reason in {finding.message for finding in findings}
