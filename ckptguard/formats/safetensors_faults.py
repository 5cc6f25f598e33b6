"""Findings about one safetensors file."""

from collections.abc import Sequence
from typing import Final

from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity

MAX_FINDINGS: Final = 50


def bounded(findings: Sequence[Finding], path: str) -> tuple[Finding, ...]:
    """Keep the first findings of one file; a hostile header could make millions."""
    if len(findings) <= MAX_FINDINGS:
        return tuple(findings)
    rest = len(findings) - MAX_FINDINGS
    last = Finding(
        code=findings[MAX_FINDINGS].code,
        check=CheckName.COVERAGE,
        severity=findings[MAX_FINDINGS].severity,
        basis=findings[MAX_FINDINGS].basis,
        message=f"{path}: {rest} more of the kind",
        file=path,
    )
    return (*findings[:MAX_FINDINGS], last)


def changed(path: str, length_bytes: int) -> Finding:
    """Say that a file ends before the length that was listed: someone writes it."""
    return Finding(
        code=FindingCode.CHANGED_DURING_CHECK,
        check=CheckName.BYTE_COUNT,
        severity=Severity.UNKNOWN,
        message=f"{path}: shorter now than when it was listed",
        file=path,
        expected=str(length_bytes),
        is_retryable=True,
    )


def short(path: str, *, expected: str, observed: int) -> Finding:
    """Say that a file is cut.

    Args:
        path: The file.
        expected: Bytes that its header demands, as text.
        observed: Bytes that it has.
    """
    return Finding(
        code=FindingCode.SHORT_SHARD,
        check=CheckName.BYTE_COUNT,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"{path}: shorter than its header demands",
        file=path,
        offset=observed,
        expected=expected,
        observed=str(observed),
    )


def long(path: str, *, expected: int, observed: int) -> Finding:
    """Say that bytes follow where the header says the file ends."""
    return Finding(
        code=FindingCode.LONG_SHARD,
        check=CheckName.BYTE_COUNT,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"{path}: {observed - expected} bytes too long for its header",
        file=path,
        offset=expected,
        expected=str(expected),
        observed=str(observed),
    )


def malformed(
    path: str,
    message: str,
    *,
    fqn: str | None = None,
    offset: int | None = None,
    expected: str | None = None,
    observed: str | None = None,
) -> Finding:
    """Say that a header breaks a rule of its format, so that readers refuse the file."""
    return Finding(
        code=FindingCode.HEADER_MALFORMED,
        check=CheckName.COVERAGE,
        severity=Severity.ERROR,
        basis=Basis.DAMAGE,
        message=f"{path}: {message}",
        file=path,
        fqn=fqn,
        offset=offset,
        expected=expected,
        observed=observed,
    )
