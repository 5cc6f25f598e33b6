"""A bound on findings: everything is counted, the first of each kind are told in full."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity

MAX_FINDINGS_PER_KIND: Final = 20
"""Findings of one check, code, severity and basis that are told one by one."""

_Kind = tuple[CheckName, FindingCode, Severity, Basis | None, bool]


def bounded(findings: Iterable[Finding], *, limit: int = MAX_FINDINGS_PER_KIND) -> tuple[Finding, ...]:
    """Keep the first findings of each kind, and say how many more there were.

    The rest is counted, never dropped in silence: one last finding of the same kind
    carries the number. It has the same severity and basis, so that the verdict does
    not depend on the bound.

    Args:
        findings: May be a generator of any length; at most `limit` of a kind are held.
        limit: Findings of one kind to keep.

    Returns:
        The kept findings in their order, then one summary per kind that had more.
    """
    kept: list[Finding] = []
    counts: Counter[_Kind] = Counter()
    for finding in findings:
        kind = _kind(finding)
        counts[kind] += 1
        if counts[kind] <= limit:
            kept.append(finding)
    more = {kind: count - limit for kind, count in counts.items() if count > limit}
    return (*kept, *(_summary(kind, count) for kind, count in more.items()))


def _kind(finding: Finding) -> _Kind:
    return (finding.check, finding.code, finding.severity, finding.basis, finding.is_retryable)


def _summary(kind: _Kind, count: int) -> Finding:
    check, code, severity, basis, is_retryable = kind
    return Finding(
        code=code,
        check=check,
        severity=severity,
        basis=basis,
        message=f"and {count} more findings of this kind ({code})",
        is_retryable=is_retryable,
    )
