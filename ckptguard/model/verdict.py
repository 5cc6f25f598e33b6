"""The verdict, and the one pure function that derives it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity


class Verdict(StrEnum):
    """Whether a checkpoint may be resumed from."""

    VALID = "VALID"
    INVALID = "INVALID"
    UNKNOWN = "UNKNOWN"


class Assurance(StrEnum):
    """How far a VALID goes, weakest first."""

    STRUCTURE = "structure"
    CONTENT = "content"
    LOADED = "loaded"
    RESUMABLE = "resumable"

    @property
    def rank(self) -> int:
        """Position in the order; higher is stronger."""
        return _RANKS[self]


_RANKS: Final = {level: rank for rank, level in enumerate(Assurance)}


class CheckStatus(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Provenance(StrEnum):
    """What is known about whether all files come from one save."""

    PROVEN = "proven"  # save-time manifest, checksums from memory
    UNCHANGED = "unchanged"  # same as when a manifest was read back from disk
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How one check ended.

    Args:
        name: Which check.
        status: How it ended.
        reason: One phrase for a person; why, if not `pass`.
        findings: What it found; all severities.
        counts: Named totals, e.g. `files`, `items`, `records`.
        seconds: Wall time.
        bytes_read: Bytes taken from storage on behalf of this check.
    """

    name: CheckName
    status: CheckStatus
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    bytes_read: int = 0

    def __post_init__(self) -> None:
        """Hold that a pass has nothing against it or in doubt, and that an error fails its check."""
        worst = {finding.severity for finding in self.findings}
        if self.status is CheckStatus.PASS and worst & {Severity.ERROR, Severity.UNKNOWN}:
            msg = f"{self.name}: a pass with an error or unknown finding"
            raise ValueError(msg)
        if Severity.ERROR in worst and self.status is not CheckStatus.FAIL:
            msg = f"{self.name}: a check with an error finding ends `fail`, not {self.status}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict and what qualifies it.

    Args:
        verdict: The answer.
        basis: Why, for INVALID; the gravest of `damage`, `unsafe`, `policy`.
        assurance: How far, for VALID.
        is_retryable: For UNKNOWN: time alone may change it.
    """

    verdict: Verdict
    basis: Basis | None = None
    assurance: Assurance | None = None
    is_retryable: bool = False


CAPPING_CODES: Final = frozenset(
    {
        FindingCode.CRC_ABSENT,
        FindingCode.NO_CHECKSUM,
        FindingCode.NEEDS_OTHER_READER,
        FindingCode.READER_NOT_INSTALLED,
        FindingCode.RANK_LOCAL_METADATA,
    }
)
"""Warnings that end their check `unknown`: what a format or reader cannot prove caps, not condemns."""

_STRUCTURE: Final = (CheckName.EXISTENCE, CheckName.BYTE_COUNT, CheckName.COVERAGE)
_LADDER: Final = (
    (CheckName.CONTENT, Assurance.CONTENT),
    (CheckName.LOAD, Assurance.LOADED),
    (CheckName.PROBE, Assurance.RESUMABLE),
)
_GRAVEST_FIRST: Final = (Basis.UNSAFE, Basis.DAMAGE, Basis.POLICY)


def derive_judgement(results: Sequence[CheckResult]) -> Judgement:
    """Derive the verdict from what the checks found (design §3).

    (a) any `error` finding: INVALID; (b) else any `unknown` finding, or checks 1-3
    not all `pass`: UNKNOWN; (c) else VALID, with the highest assurance whose own
    check and all below it pass. An unread byte never makes a check pass.

    Args:
        results: At most one result per check; any order; absent means skipped.

    Raises:
        ValueError: Two results for one check; which one counts would be chance.
    """
    if len({result.name for result in results}) != len(results):
        msg = "more than one result for a check"
        raise ValueError(msg)
    findings = [finding for result in results for finding in result.findings]
    bases = {finding.basis for finding in findings if finding.severity is Severity.ERROR}
    if bases:
        return Judgement(
            verdict=Verdict.INVALID, basis=next(basis for basis in _GRAVEST_FIRST if basis in bases)
        )
    passed = {result.name for result in results if result.status is CheckStatus.PASS}
    doubts = [finding for finding in findings if finding.severity is Severity.UNKNOWN]
    # A check may fail over an error that another check found; alone it is a doubt without a name.
    has_failed = any(result.status is CheckStatus.FAIL for result in results)
    if doubts or has_failed or not passed.issuperset(_STRUCTURE):
        is_retryable = bool(doubts) and not has_failed and all(finding.is_retryable for finding in doubts)
        return Judgement(verdict=Verdict.UNKNOWN, is_retryable=is_retryable)
    return Judgement(verdict=Verdict.VALID, assurance=_highest(passed))


def _highest(passed: set[CheckName]) -> Assurance:
    highest = Assurance.STRUCTURE
    for name, assurance in _LADDER:
        if name not in passed:
            break
        highest = assurance
    return highest


def conclude(
    name: CheckName,
    findings: Sequence[Finding],
    *,
    counts: Mapping[str, int] | None = None,
    seconds: float = 0.0,
    bytes_read: int = 0,
) -> CheckResult:
    """End a check that ran to its end: its findings alone decide how.

    Any error: `fail`; else any doubt or capping warning: `unknown`; else `pass`. The
    reason is the message of the first finding that decided.
    """
    status, decisive = CheckStatus.PASS, None
    for candidate, is_decisive in (
        (CheckStatus.FAIL, _is_error),
        (CheckStatus.UNKNOWN, _is_doubt),
    ):
        decisive = next((finding for finding in findings if is_decisive(finding)), None)
        if decisive is not None:
            status = candidate
            break
    return CheckResult(
        name=name,
        status=status,
        reason=decisive.message if decisive else "",
        findings=tuple(findings),
        counts=dict(counts or {}),
        seconds=seconds,
        bytes_read=bytes_read,
    )


def skipped(name: CheckName, reason: str) -> CheckResult:
    """End a check that was not asked for."""
    return CheckResult(name=name, status=CheckStatus.SKIPPED, reason=reason)


def _is_error(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR


def _is_doubt(finding: Finding) -> bool:
    return finding.severity is Severity.UNKNOWN or (
        finding.severity is Severity.WARNING and finding.code in CAPPING_CODES
    )
