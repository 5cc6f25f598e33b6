"""What the user says must be in the checkpoint (`--profile`)."""

import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import translate

from ckptguard.checks.bounded import bounded
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Layout


def check_profile(
    layouts: Sequence[Layout], required_fqns: Sequence[str], *, files: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Report every required pattern that matches no declared tensor or object, and no file.

    Args:
        layouts: All parts of one checkpoint; a name may be in any of them.
        required_fqns: Shell patterns, case-sensitive: `*`, `?`, `[seq]`; an exact name
            that holds such characters matches itself.
        files: Paths beside the shards, which a profile may name exactly (`data.pt`).

    Returns:
        One error of basis `policy` per pattern without a match, bounded.

    Cost: patterns x names.
    """
    names = {name for layout in layouts for name in _names(layout)}
    return bounded(
        _missing(pattern)
        for pattern in required_fqns
        if pattern not in files and not _matches(pattern, names)
    )


def _names(layout: Layout) -> Iterator[str]:
    yield from (tensor.fqn for tensor in layout.tensors)
    yield from layout.objects


def _matches(pattern: str, names: set[str]) -> bool:
    matches = re.compile(translate(pattern)).match
    return pattern in names or any(matches(name) for name in names)


def _missing(pattern: str) -> Finding:
    return Finding(
        code=FindingCode.MISSING_TENSOR,
        check=CheckName.COVERAGE,
        severity=Severity.ERROR,
        basis=Basis.POLICY,
        message=f"nothing in this checkpoint is named {pattern}, which the profile requires",
        fqn=pattern,
        expected=f"at least one name that matches {pattern}",
        observed="none",
    )
