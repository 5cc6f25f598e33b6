"""The verdict table: a report as lines that a person reads in ten seconds."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ckptguard.cli.lines import Line, Span, Style, plain
from ckptguard.cli.next_steps import next_steps
from ckptguard.cli.plain_text import (
    bytes_text,
    cell_width,
    count_text,
    printable,
    rate_text,
    seconds_text,
    wrap_cells,
)
from ckptguard.cli.render_findings import render_places, render_remarks, wrapped
from ckptguard.model.finding import Basis, CheckName, Severity
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Assurance, CheckResult, CheckStatus, Judgement, Provenance, Verdict

MAX_ROW_LINES: Final = 2
"""Further lines of a check's row on a narrow terminal; its findings say the rest."""

_FIRST_COLUMN: Final = 2 + 12 + 9
_TIMING: Final = 20
_READING: Final = (CheckName.CONTENT, CheckName.LOAD)


class Mark(NamedTuple):
    """How a check's status looks: never by colour alone.

    Args:
        sign: One cell.
        word: The same in letters.
        style: Colour, where there is one.
    """

    sign: str
    word: str
    style: Style


MARKS: Final = {
    CheckStatus.PASS: Mark("+", "pass", Style.GOOD),
    CheckStatus.FAIL: Mark("x", "FAIL", Style.BAD),
    CheckStatus.UNKNOWN: Mark("?", "unknown", Style.DOUBT),
    CheckStatus.SKIPPED: Mark("-", "skipped", Style.FAINT),
}

_VERDICT_STYLES: Final = {
    Verdict.VALID: Style.GOOD,
    Verdict.INVALID: Style.BAD,
    Verdict.UNKNOWN: Style.DOUBT,
}

_MEANING_OF_BASIS: Final = {
    Basis.DAMAGE: "Do not resume from it: it is damaged.",
    Basis.UNSAFE: "Do not load it: loading would run code.",
    Basis.POLICY: "It breaks a rule that you asked for.",
}

_MEANING_OF_ASSURANCE: Final = {
    Assurance.STRUCTURE: "Complete by name and size; content is not proven.",
    Assurance.CONTENT: "Every byte is as it was written; loading is not proven.",
    Assurance.LOADED: "Every byte is as it was written, and it loads.",
    Assurance.RESUMABLE: "It loads, and gives the value recorded at save.",
}

_MEANING_OF_PROVENANCE: Final = {
    Provenance.PROVEN: "one save, by its save-time manifest",
    Provenance.UNCHANGED: "as it was when the manifest was read back from storage",
    Provenance.UNPROVEN: "nothing shows that all files come from one save",
}


def render_report(report: Report, policy: Policy, *, width: int | None = None) -> Iterator[Line]:
    """Yield the whole answer of `check` for one checkpoint.

    Args:
        report: What was found; every name in it is taken as hostile.
        policy: What was asked, for the line that says what was read.
        width: Cells to wrap at; None: lines stay whole.
    """
    yield from _headline(report, width)
    yield ()
    for check in report.checks:
        yield from _check_row(check, width)
    yield from render_places(report, width)
    yield from render_remarks(report, width)
    yield from _advice(report, width)
    yield ()
    yield from wrapped(_footer(report, policy), width, style=Style.FAINT)


def _headline(report: Report, width: int | None) -> Iterator[Line]:
    judgement = report.judgement
    style = _VERDICT_STYLES[judgement.verdict]
    yield (Span(verdict_text(judgement), style), Span("  "), Span(_meaning(judgement), Style.STRONG))
    step = f", step {report.step}" if report.step is not None else ""
    yield from wrapped(
        f"{printable(report.path)} ({printable(report.format) or 'unknown format'}{step})", width
    )
    yield from wrapped(
        f"provenance: {report.provenance.value} ({_MEANING_OF_PROVENANCE[report.provenance]})", width
    )


def verdict_text(judgement: Judgement) -> str:
    """Return the verdict with what qualifies it, e.g. `VALID (loaded)`."""
    if judgement.basis is not None:
        return f"{judgement.verdict.value} ({judgement.basis.value})"
    if judgement.assurance is not None:
        return f"{judgement.verdict.value} ({judgement.assurance.value})"
    return judgement.verdict.value


def _meaning(judgement: Judgement) -> str:
    if judgement.basis is not None:
        return _MEANING_OF_BASIS[judgement.basis]
    if judgement.assurance is not None:
        return _MEANING_OF_ASSURANCE[judgement.assurance]
    return (
        "It could not be decided; time may change that."
        if judgement.is_retryable
        else "It could not be decided."
    )


def _check_row(check: CheckResult, width: int | None) -> Iterator[Line]:
    mark = MARKS[check.status]
    counts = ", ".join(count_text(count, noun) for noun, count in check.counts.items() if count)
    detail = "; ".join(text for text in (printable(check.reason), counts) if text)
    timing = _timing(check)
    first = (
        Span(f"{mark.sign} ", mark.style),
        Span(f"{check.name.value:<12}"),
        Span(f"{mark.word:<9}", mark.style),
    )
    if width is None:
        yield (*first, Span("  ".join(text for text in (detail, timing) if text)))
        return
    room = width - _FIRST_COLUMN - _TIMING - 1
    head, *rest = wrap_cells(detail, room)
    padding = " " * (room - cell_width(head) + 1)
    yield (*first, Span(head), Span(f"{padding}{timing:>{_TIMING}}", Style.FAINT))
    for line in rest[:MAX_ROW_LINES]:
        yield plain(" " * _FIRST_COLUMN + line)
    if rest[MAX_ROW_LINES:]:
        yield plain(" " * _FIRST_COLUMN + "... (below)")


def _timing(check: CheckResult) -> str:
    if not check.seconds:
        return ""
    rate = rate_text(check.bytes_read, check.seconds) if check.name in _READING else ""
    return "  ".join(text for text in (seconds_text(check.seconds), rate) if text)


def _advice(report: Report, width: int | None) -> Iterator[Line]:
    steps = next_steps(report)
    if not steps:
        return
    yield ()
    yield (Span("What to do next", Style.STRONG),)
    for step in steps:
        yield from wrapped(step, width, indent="  - ")


def _footer(report: Report, policy: Policy) -> str:
    share = f" ({report.bytes_read / report.bytes_total:.3f} x its size)" if report.bytes_total else ""
    rate = rate_text(report.bytes_read, report.seconds_reading)
    reading = f" in {seconds_text(report.seconds_reading)}, {rate}" if rate else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    parts = (
        f"read {bytes_text(report.bytes_read)}{share}{reading}",
        _what_was_read(policy),
        f"device {printable(report.device)}" if report.device else "no device",
        printable(versions),
        f"{seconds_text(report.seconds)} in all",
    )
    return "; ".join(part for part in parts if part)


def _what_was_read(policy: Policy) -> str:
    if policy.depth is Depth.STRUCTURE:
        return "names, sizes and metadata only"
    return "past the page cache" if policy.is_direct else "cached pages where there were any"


def render_step_line(report: Report) -> Line:
    """Return one step of `--step all` as one line."""
    judgement = report.judgement
    decisive = next((finding for finding in report.findings if finding.severity is not Severity.INFO), None)
    where = f"  {decisive.code.value} {printable(decisive.file or '')}".rstrip() if decisive else ""
    step = "?" if report.step is None else report.step
    return (
        Span(f"step {step:<10} "),
        Span(f"{verdict_text(judgement):<18}", _VERDICT_STYLES[judgement.verdict]),
        Span(f"{bytes_text(report.bytes_total):>10} {seconds_text(report.seconds):>10}", Style.FAINT),
        Span(where),
    )
