"""Findings as lines: the damaged places with their evidence, and remarks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ckptguard.cli.lines import Line, Span, Style, plain
from ckptguard.cli.plain_text import cell_width, printable, wrap_cells
from ckptguard.model.finding import Finding, Severity
from ckptguard.model.report import Report

MAX_PLACES: Final = 3
"""Damaged places shown in full; the rest is counted."""

MAX_LINES: Final = 6
"""Last lines shown of a text that has several: the tail of a child's output."""


def render_places(report: Report, width: int | None) -> Iterator[Line]:
    """Yield what is damaged, then what is in doubt: the first places in full, the rest counted."""
    for severity, title, style in (
        (Severity.ERROR, "Damaged", Style.BAD),
        (Severity.UNKNOWN, "In doubt", Style.DOUBT),
    ):
        found = [finding for finding in report.findings if finding.severity is severity]
        if not found:
            continue
        yield ()
        yield (Span(title, style),)
        for finding in found[:MAX_PLACES]:
            yield from _place(finding, width, style=style)
        yield from _rest_of(found)


def _place(finding: Finding, width: int | None, *, style: Style) -> Iterator[Line]:
    basis = f" ({finding.basis.value})" if finding.basis else ""
    yield (Span("  "), Span(f"{finding.code.value}{basis}", style), Span(f", {finding.check.value}"))
    yield from wrapped(printable(finding.message), width, indent="    ")
    for label, value in _evidence(finding):
        lines = value.splitlines()[-MAX_LINES:] if label == "observed" else [value]
        for number, line in enumerate(lines):
            yield from wrapped(printable(line), width, indent=f"    {'' if number else label:<10}")


def _evidence(finding: Finding) -> Iterator[tuple[str, str]]:
    sliced = None
    if finding.slice_offsets is not None:
        sliced = f"offsets {list(finding.slice_offsets)}, sizes {list(finding.slice_sizes or ())}"
    for label, value in (
        ("file", finding.file),
        ("tensor", finding.fqn),
        ("slice", sliced),
        ("record", finding.record),
        ("bytes", _extent(finding)),
        ("expected", finding.expected),
        ("observed", finding.observed),
    ):
        if value is not None:
            yield label, value


def _extent(finding: Finding) -> str | None:
    if finding.offset is None:
        return f"{finding.length_bytes}" if finding.length_bytes is not None else None
    length = f", {finding.length_bytes:,} bytes" if finding.length_bytes is not None else ""
    return f"from byte {finding.offset} (0x{finding.offset:x}) of the file{length}"


def _rest_of(found: Sequence[Finding]) -> Iterator[Line]:
    hidden = Counter(finding.code.value for finding in found[MAX_PLACES:])
    if hidden:
        codes = ", ".join(f"{code} {count}" for code, count in hidden.most_common())
        yield plain(f"  and {hidden.total():,} more: {codes} (--json lists all)")


def render_remarks(report: Report, width: int | None) -> Iterator[Line]:
    """Yield warnings, infos, and what was found in the surroundings: one line each, the rest counted."""
    remarks = (Severity.WARNING, Severity.INFO)
    noted = [finding for finding in report.findings if finding.severity in remarks]
    noted += report.other_findings
    if not noted:
        return
    yield ()
    yield (Span("Remarks", Style.STRONG),)
    for finding in noted[:MAX_PLACES]:
        where = f" [{finding.file}]" if finding.file else ""
        yield from wrapped(
            printable(f"{finding.code.value}: {finding.message}{where}"), width, indent="  ", hanging=2
        )
    yield from _rest_of(noted)


def wrapped(
    text: str, width: int | None, *, indent: str = "", hanging: int = 0, style: Style = Style.PLAIN
) -> Iterator[Line]:
    """Yield printable text as lines of at most `width` cells.

    Args:
        text: Already printable.
        width: Cells; None: one line.
        indent: Before the first line; the others are indented as far.
        hanging: Cells more before the others.
        style: Of the text.
    """
    following = " " * (cell_width(indent) + hanging)
    room = None if width is None else width - len(following)
    for number, line in enumerate(wrap_cells(text, room)):
        yield (Span(following if number else indent), Span(line, style))
