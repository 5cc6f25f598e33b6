"""What the service answers, as cells and lines: names in it are hostile, times become ages."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from ckptguard.cli.lines import Line, Span, Style, plain
from ckptguard.cli.plain_text import bytes_text, count_text, printable, seconds_text
from ckptguard.cli.table import Cell, cell
from ckptguard.client.answers import (
    Checkpoint,
    CheckpointDetail,
    Exposure,
    HoldFact,
    Run,
    Validation,
)
from ckptguard.model.verdict import Verdict

VERDICT_STYLES: Final = {
    Verdict.VALID: Style.GOOD,
    Verdict.INVALID: Style.BAD,
    Verdict.UNKNOWN: Style.DOUBT,
    None: Style.FAINT,
}
_DAY_S: Final = 86_400

HISTORY_TITLES: Final = ("id", "branch", "step", "verdict", "state", "held", "size", "saved", "folder")
RUN_TITLES: Final = ("run", "newest valid", "saved", "valid", "invalid", "unknown", "open", "a failure costs")


def age_text(time: datetime | None, now: datetime) -> str:
    """Return how long ago something was, e.g. `2 h 05 min ago`; in the future: the time itself."""
    if time is None:
        return "-"
    seconds = (now - time).total_seconds()
    if seconds < 0:
        return time.isoformat(timespec="seconds")
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.0f} days ago"
    return f"{seconds_text(seconds) if seconds >= 1 else '0 s'} ago"


def time_text(time: datetime, now: datetime) -> str:
    """Return in how long something is to come, e.g. `in 4 min`; in the past: as soon as possible."""
    seconds = (time - now).total_seconds()
    return f"in {seconds_text(seconds)}" if seconds >= 1 else "now"


def verdict_of(checkpoint: Checkpoint | Validation) -> str:
    """Return the verdict with what qualifies it, e.g. `INVALID (damage)`; `-` without one."""
    if checkpoint.verdict is None:
        return "-"
    qualifier = checkpoint.basis or checkpoint.assurance
    return f"{checkpoint.verdict.value} ({qualifier.value})" if qualifier else checkpoint.verdict.value


def state_of(checkpoint: Checkpoint) -> str:
    """Return the lifecycle, and whether a validation is open."""
    superseded = f" ({checkpoint.superseded_by})" if checkpoint.superseded_by else ""
    open_text = f", {checkpoint.validation_state}" if checkpoint.validation_state else ""
    return f"{checkpoint.lifecycle}{superseded}{open_text}"


def hold_text(fact: HoldFact) -> str:
    """Return one hold: its name, and by whom and why where that is told."""
    by = f" by {fact.by}" if fact.by else ""
    return f"{fact.hold}{by}: {fact.reason}" if fact.reason else f"{fact.hold}{by}"


def history_row(checkpoint: Checkpoint, now: datetime) -> tuple[Cell, ...]:
    """Return the cells of `HISTORY_TITLES`."""
    size = None if checkpoint.bytes_total is None else bytes_text(checkpoint.bytes_total)
    return (
        cell(checkpoint.id),
        cell(checkpoint.branch),
        cell(checkpoint.step),
        cell(verdict_of(checkpoint), VERDICT_STYLES[checkpoint.verdict]),
        cell(state_of(checkpoint)),
        cell(", ".join(checkpoint.holds)),
        cell(size),
        cell(age_text(checkpoint.created_at, now)),
        cell(f"{checkpoint.store}:{checkpoint.path}" if checkpoint.path is not None else checkpoint.url),
    )


def run_row(run: Run, now: datetime) -> tuple[Cell, ...]:
    """Return the cells of `RUN_TITLES`."""
    newest = run.newest_valid
    counts = run.counts
    return (
        cell(run.name, Style.STRONG),
        cell(f"step {newest.step}" if newest else "none", Style.GOOD if newest else Style.BAD),
        cell(age_text(newest.created_at, now) if newest else None),
        cell(counts.get("VALID", 0)),
        cell(counts.get("INVALID", 0), Style.BAD if counts.get("INVALID") else Style.PLAIN),
        cell(counts.get("UNKNOWN", 0)),
        cell(run.open_validations),
        cell(exposure_text(run.exposure)),
    )


def exposure_text(exposure: Exposure | None) -> str | None:
    """Return what a failure now would cost, e.g. `$144,000, 48,000 GPU-hours, 6 h 00 min`."""
    if exposure is None:
        return None
    parts = (
        None if exposure.usd is None else f"${exposure.usd:,.0f}",
        None if exposure.gpu_hours is None else f"{exposure.gpu_hours:,.0f} GPU-hours",
        None if exposure.seconds is None else seconds_text(exposure.seconds),
    )
    return ", ".join(part for part in parts if part) or None


def facts(rows: Sequence[tuple[str, object]]) -> Iterator[Line]:
    """Yield `label value` lines; None is left out."""
    for label, value in rows:
        if value is not None and value != "":
            yield plain(f"{label:<13}{printable(str(value), max_chars=2000)}")


def headline(checkpoint: Checkpoint) -> Line:
    """Return the line that says what a checkpoint is."""
    return (
        Span(verdict_of(checkpoint), VERDICT_STYLES[checkpoint.verdict]),
        Span(f"  {printable(checkpoint.run)}, step {checkpoint.step}", Style.STRONG),
        Span(f"  (checkpoint {checkpoint.id})", Style.FAINT),
    )


def checkpoint_facts(checkpoint: Checkpoint, now: datetime) -> Iterator[Line]:
    """Yield everything that is known of a checkpoint itself."""
    size = None if checkpoint.bytes_total is None else bytes_text(checkpoint.bytes_total)
    facts_of_holds = checkpoint.hold_facts if isinstance(checkpoint, CheckpointDetail) else ()
    files = None if checkpoint.num_files is None else count_text(checkpoint.num_files, "files")
    yield from facts(
        [
            ("state", state_of(checkpoint)),
            ("held", "; ".join(map(hold_text, facts_of_holds)) or ", ".join(checkpoint.holds)),
            ("branch", checkpoint.branch),
            ("save", checkpoint.save_id),
            ("folder", checkpoint.url or checkpoint.path),
            ("format", checkpoint.format),
            ("size", ", ".join(text for text in (size, files) if text)),
            ("saved", age_text(checkpoint.created_at, now)),
            ("provenance", checkpoint.provenance),
            ("device", checkpoint.device),
            (
                "validated",
                None if checkpoint.validated_at is None else age_text(checkpoint.validated_at, now),
            ),
            ("tried again", None if checkpoint.retry_at is None else time_text(checkpoint.retry_at, now)),
        ]
    )
