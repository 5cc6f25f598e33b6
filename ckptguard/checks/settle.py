"""Second looks: what a listing shows is confirmed after the settle time before it condemns.

Listings of object stores and NFS lag behind writers, and a save may still be running.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ckptguard.model.finding import Finding, FindingCode, Severity

MAY_SETTLE: Final = frozenset(
    {
        FindingCode.MISSING_SHARD,
        FindingCode.SHORT_SHARD,
        FindingCode.NOT_COMMITTED,
        FindingCode.EMPTY_METADATA,
        FindingCode.TRUNCATED_METADATA,
    }
)
"""What time alone can heal: files that are not there yet, or not whole yet."""


def needs_second_look(findings: Sequence[Finding]) -> bool:
    """Say whether any finding could be the picture of a save, or a listing, that is not finished."""
    return any(_may_settle(finding) for finding in findings)


def confirm(first: Sequence[Finding], second: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings of the second look, condemning only what stayed the same.

    What went away is gone. What is there again with the same observation is confirmed.
    What is new, or observed differently, is still moving: it becomes `unknown` and
    retryable, because nobody has seen it at rest.

    Args:
        first: Findings of the same checks before the settle time.
        second: Findings after it, of a new listing.
    """
    seen = {_sight(finding) for finding in first}
    return tuple(_confirmed(second, seen))


def _confirmed(second: Sequence[Finding], seen: set[tuple[str | None, ...]]) -> Iterator[Finding]:
    for finding in second:
        if not _may_settle(finding) or _sight(finding) in seen:
            yield finding
        else:
            yield replace(
                finding,
                severity=Severity.UNKNOWN,
                basis=None,
                is_retryable=True,
                message=f"{finding.message}; it changed between two looks, a writer may be at work",
            )


def _may_settle(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR and finding.code in MAY_SETTLE


def _sight(finding: Finding) -> tuple[str | None, ...]:
    return (finding.code, finding.file, finding.fqn, finding.expected, finding.observed)
