"""`ckptguard watch`: what happens to a run, while it happens."""

import json as jsonlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, Final

import typer

from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.lines import Line, Span, Style, is_live, write_lines, write_text
from ckptguard.cli.options import parse_duration
from ckptguard.cli.plain_text import printable
from ckptguard.cli.progress_display import LineProgress, showing_progress
from ckptguard.cli.service import service
from ckptguard.client.sse import ServerEvent
from ckptguard.clock import SystemClock
from ckptguard.model.service import EventKind
from ckptguard.scan.progress import Progress, ProgressListener

app = typer.Typer(add_completion=False, rich_markup_mode=None)

PROGRESS: Final = "progress"
_MAX_TOLD_CHARS: Final = 300
_ENDS: Final = frozenset({EventKind.VALIDATION_FINISHED.value, EventKind.VALIDATION_ATTEMPT_ENDED.value})
"""After these, the progress that was shown is over."""
_STYLES: Final = {"VALID": Style.GOOD, "INVALID": Style.BAD, "UNKNOWN": Style.DOUBT}

_HELP = """Watch a run: registrations, verdicts and progress as they happen. Ends on Ctrl-C.

\b
Examples:
  ckptguard watch --run pretrain-7
  ckptguard watch --run pretrain-7 --json | jq .kind
  ckptguard watch --patience 10m
"""


@app.command(help=_HELP)
def watch(
    *,
    run: service_arg.RunFilter = None,
    patience: Annotated[
        str | None, typer.Option("--patience", metavar="DURATION", help="End if the service is away so long.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on each line.")] = False,
) -> int:
    """Run `watch` and return its exit code."""
    patience_s = None if patience is None else parse_duration("--patience", patience)
    with service() as client, _teller(is_json=json) as tell:
        if run is not None:
            client.run(run)  # an unknown run is an error, not silence
        try:
            for event in client.stream(run=run, patience_s=patience_s):
                tell(event)
        except KeyboardInterrupt:
            return ExitCode.OK
    return ExitCode.OK


@contextmanager
def _teller(*, is_json: bool) -> Iterator[Callable[[ServerEvent], None]]:
    if is_json:
        yield lambda event: write_text(f"{jsonlib.dumps(event_object(event))}\n", sys.stdout)
        return
    # A bar that is drawn takes standard output over, which a pipe behind it would never see again.
    showing = (
        showing_progress()
        if is_live(sys.stdout)
        else nullcontext(LineProgress(sys.stderr, clock=SystemClock()))
    )
    with showing as listener:
        yield lambda event: _tell(event, listener)


def event_object(event: ServerEvent) -> dict[str, Any]:
    """Return the JSON object of one line of `watch --json`."""
    return {"schema": 1, "kind": event.kind, "id": event.id, "data": event.data}


def _tell(event: ServerEvent, listener: ProgressListener) -> None:
    if event.kind == PROGRESS:
        listener(progress_of(event))
        return
    write_lines([event_line(event)], sys.stdout)
    if event.kind in _ENDS:
        listener(Progress(phase="waiting"))


def progress_of(event: ServerEvent) -> Progress:
    """Return the progress that an event tells; what it does not tell is 0."""
    data = _members(event.data)
    told = _members(data.get("progress")) or data
    step = data.get("step")
    phase = told.get("phase") or "validating"
    return Progress(
        phase=f"step {step}" if isinstance(step, int) else str(phase),
        bytes_done=_count(told, "bytes_done"),
        bytes_total=_count(told, "bytes_total"),
        files_done=_count(told, "files_done"),
        files_total=_count(told, "files_total"),
    )


def event_line(event: ServerEvent) -> Line:
    """Return one event as a line."""
    envelope = _members(event.data)
    data = {**envelope, **_members(envelope.get("data"))}
    at = str(data.get("at", ""))[:19].replace("T", " ")
    verdict = data.get("verdict")
    told = ", ".join(
        f"{name} {value}"
        for name, value in data.items()
        if name not in _ENVELOPE and isinstance(value, str | int)
    )
    step = data.get("step")
    where = f"step {step}" if isinstance(step, int) else ""
    if not where and isinstance(data.get("checkpoint_id"), int):
        where = f"checkpoint {data['checkpoint_id']}"
    return (
        Span(f"{printable(at):<20}", Style.FAINT),
        Span(f"{printable(event.kind):<28} "),
        Span(f"{where:<14} "),
        Span(f"{printable(str(verdict))} " if verdict else "", _STYLES.get(str(verdict), Style.PLAIN)),
        Span(printable(told, max_chars=_MAX_TOLD_CHARS)),
    )


_ENVELOPE: Final = frozenset(
    {
        "at",
        "id",
        "kind",
        "run",
        "step",
        "checkpoint_id",
        "validation_id",
        "verdict",
        "data",
        "project",
        "schema",
    }
)


def _members(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(members: Mapping[str, Any], name: str) -> int:
    value = members.get(name)
    return value if isinstance(value, int) and value >= 0 else 0
