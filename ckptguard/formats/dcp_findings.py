"""Findings about a `.metadata` and what it says, and a bound on their number."""

from collections import Counter
from functools import partial
from typing import Final

from ckptguard.formats.denied_globals import is_denied
from ckptguard.formats.pickle_reader import PickleError, PickleTruncatedError
from ckptguard.model.finding import Basis, CheckName, Finding, FindingCode, Severity

MAX_PER_KIND: Final = 20
_MAX_SHOWN_CHARS: Final = 200

_error = partial(Finding, severity=Severity.ERROR, basis=Basis.DAMAGE)

_Kind = tuple[FindingCode, Severity, CheckName]


class FindingBag:
    """Findings, of which the first of each kind are kept and the rest counted.

    A hostile file could make millions.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._kept: list[Finding] = []
        self._counts: Counter[_Kind] = Counter()
        self._last: dict[_Kind, Finding] = {}

    def add(self, finding: Finding) -> None:
        """Keep or count one."""
        kind = (finding.code, finding.severity, finding.check)
        self._counts[kind] += 1
        if self._counts[kind] <= MAX_PER_KIND:
            self._kept.append(finding)
        else:
            self._last[kind] = finding

    def findings(self) -> tuple[Finding, ...]:
        """Return those kept, and for each kind that had more one that says how many."""
        more = (
            Finding(
                code=last.code,
                check=last.check,
                severity=last.severity,
                basis=last.basis,
                message=f"and {self._counts[kind] - MAX_PER_KIND} more of this kind ({last.code})",
                file=last.file,
            )
            for kind, last in self._last.items()
        )
        return (*self._kept, *more)


def shown(value: object) -> str:
    """Return text of the writer as it may stand in a message: bounded, printable."""
    if isinstance(value, str):
        return ascii(value) if len(value) <= _MAX_SHOWN_CHARS else ascii(value[:_MAX_SHOWN_CHARS]) + "…"
    return f"a {type(value).__name__}"


def unreadable(file: str, data: bytes, error: PickleError) -> Finding:
    """Say why a metadata file is no pickle: cut, zero-filled, or something else."""
    is_cut = isinstance(error, PickleTruncatedError)
    start = _zeros_from(data)
    if start == 0:
        what = f"is zero-filled: {len(data)} bytes, all 0"
    elif not is_cut and start <= error.offset:
        what = f"is zero-filled from byte {start} of {len(data)} on"
    elif is_cut:
        what = f"is truncated at byte {len(data)}: the pickle in it goes on"
    else:
        what = f"is malformed: {error}"
    return _error(
        code=FindingCode.TRUNCATED_METADATA if is_cut and start else FindingCode.MALFORMED_METADATA,
        check=CheckName.EXISTENCE,
        message=f"{file} {what}",
        file=file,
        offset=error.offset,
        expected=f"at least {error.needed_bytes} bytes"
        if isinstance(error, PickleTruncatedError)
        else "a pickle",
        observed=f"{len(data)} bytes" if is_cut else what.removeprefix("is "),
    )


def _zeros_from(data: bytes) -> int:
    """Return where the zeros at the end begin; the length if the last byte is not 0."""
    return len(data.rstrip(b"\0"))


def empty(file: str) -> Finding:
    """Say that a metadata file has 0 bytes."""
    return _error(
        code=FindingCode.EMPTY_METADATA,
        check=CheckName.EXISTENCE,
        message=f"{file} is empty: 0 bytes",
        file=file,
        expected="a pickle of torch's Metadata",
        observed="0 bytes",
    )


def trailing(file: str, *, end: int, length_bytes: int) -> Finding:
    """Say that bytes follow the pickle; stock torch does not look at them (facts.md §c)."""
    return Finding(
        code=FindingCode.MALFORMED_METADATA,
        check=CheckName.EXISTENCE,
        severity=Severity.WARNING,
        message=f"{file} has {length_bytes - end} bytes after the end of its pickle, which no load reads",
        file=file,
        offset=end,
        length_bytes=length_bytes - end,
        expected=f"{end} bytes",
        observed=f"{length_bytes} bytes",
    )


def malformed(file: str, message: str, *, fqn: str | None = None) -> Finding:
    """Say that a field of the metadata cannot be what a writer stored."""
    return _error(
        code=FindingCode.MALFORMED_METADATA,
        check=CheckName.COVERAGE,
        message=f"{file}: {message}",
        file=file,
        fqn=fqn,
    )


def unknown_class(file: str, dotted: str, place: str) -> Finding:
    """Say that a class nobody here knows, or worse, stands where the layout is described."""
    if is_denied(dotted):
        return Finding(
            code=FindingCode.UNSAFE_PICKLE,
            check=CheckName.COVERAGE,
            severity=Severity.ERROR,
            basis=Basis.UNSAFE,
            message=f"{file}: {place} is a call of {dotted[:_MAX_SHOWN_CHARS]}: stock torch would run it",
            file=file,
            expected="a class of torch.distributed.checkpoint",
            observed=dotted,
        )
    return Finding(
        code=FindingCode.UNKNOWN_GLOBAL,
        check=CheckName.COVERAGE,
        severity=Severity.UNKNOWN,
        message=f"{file}: {place} is a {dotted[:_MAX_SHOWN_CHARS]}, which this version does not know;"
        " written by a newer torch, or by another storage writer?",
        file=file,
        expected="a class of torch.distributed.checkpoint",
        observed=dotted,
    )


def not_opened(file: str) -> Finding:
    """Say that the metadata is a link out of the allowed root, or no regular file."""
    return Finding(
        code=FindingCode.PATH_ESCAPE,
        check=CheckName.EXISTENCE,
        severity=Severity.UNKNOWN,
        message=f"{file} is a link out of the allowed root, or not a regular file; it was not opened",
        file=file,
        expected="a regular file inside the root",
        observed="a link out of it, or another kind of file",
    )


def out_of_bounds(path: str, *, fqn: str, offset: object, length: object) -> Finding:
    """Say that an item's extent is none."""
    return _error(
        code=FindingCode.ITEM_OUT_OF_BOUNDS,
        check=CheckName.COVERAGE,
        message=f"{fqn} is said to lie in {path} at an offset and length that no file has",
        file=path,
        fqn=fqn,
        expected="an offset and a length from 0 to 2**63",
        observed=f"{_number(offset)}, {_number(length)}",
    )


def _number(value: object) -> str:
    is_short = isinstance(value, int) and value.bit_length() <= 256  # noqa: PLR2004 - long ones are slow to print
    return str(value) if is_short else shown(value)
