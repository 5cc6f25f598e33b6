"""Second looks: what is seen once does not condemn.

Listings of object stores and NFS lag behind writers, a save may still be running, and
metadata may be read wrongly on its way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ckptguard.model.finding import Finding, FindingCode, Severity

MAY_SETTLE: Final = frozenset(
    {
        FindingCode.MISSING_SHARD,
        FindingCode.SHORT_SHARD,
        FindingCode.LONG_SHARD,
        FindingCode.NOT_COMMITTED,
        FindingCode.EMPTY_METADATA,
        FindingCode.TRUNCATED_METADATA,
    }
)
"""What time alone can heal: files that are not there yet, or not whole yet."""

_LISTED: Final = MAY_SETTLE - {FindingCode.TRUNCATED_METADATA}
"""Of these, what a listing shows: no byte was read for them."""


def needs_second_look(findings: Sequence[Finding]) -> bool:
    """Say whether anything condemns: it is looked at again, past every cache."""
    return any(_is_error(finding) for finding in findings)


def needs_time(findings: Sequence[Finding]) -> bool:
    """Say whether any finding could be the picture of a save, or a listing, that is not finished."""
    return any(_is_error(finding) and finding.code in MAY_SETTLE for finding in findings)


def confirm(
    first: Sequence[Finding], second: Sequence[Finding], *, is_same_metadata: bool = False
) -> tuple[Finding, ...]:
    """Return the findings of the second look, condemning only what stayed the same.

    What went away is gone, unless bytes were read differently though nobody wrote them.
    What is there again with the same observation is confirmed. What is new, or observed
    differently, is still moving: it becomes `unknown` and retryable, because nobody has
    seen it at rest.

    Args:
        first: Findings of the same checks before the settle time.
        second: Findings after it, of a new listing.
        is_same_metadata: Both looks were at the same versions of the metadata files.
    """
    seen = {_sight(finding) for finding in first}
    confirmed = tuple(_confirmed(second, seen))
    return (*confirmed, *_unstable(first, second)) if is_same_metadata else confirmed


def _confirmed(second: Sequence[Finding], seen: set[tuple[str | None, ...]]) -> Iterator[Finding]:
    for finding in second:
        if not _is_error(finding) or _sight(finding) in seen:
            yield finding
        else:
            yield in_motion(finding, "it changed between two looks, a writer may be at work")


def _unstable(first: Sequence[Finding], second: Sequence[Finding]) -> Iterator[Finding]:
    seen = {_sight(finding) for finding in second}
    for finding in first:
        if _is_error(finding) and finding.code not in _LISTED and _sight(finding) not in seen:
            yield Finding(
                code=FindingCode.UNSTABLE_READ,
                check=finding.check,
                severity=Severity.UNKNOWN,
                is_retryable=True,
                message=f"metadata reads differently each time: {finding.message}; not so when read again",
                file=finding.file,
                expected=finding.expected,
                observed=finding.observed,
            )
            return


def in_motion(finding: Finding, why: str) -> Finding:
    """Turn an error about bytes that nobody saw at rest into a doubt that time settles.

    Args:
        finding: Any; one that is no error is returned as it is.
        why: For a person.
    """
    if not _is_error(finding):
        return finding
    return replace(
        finding,
        severity=Severity.UNKNOWN,
        basis=None,
        is_retryable=True,
        message=f"{finding.message}; {why}",
    )


def _is_error(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR


def _sight(finding: Finding) -> tuple[str | None, ...]:
    return (finding.code, finding.file, finding.fqn, finding.expected, finding.observed)
