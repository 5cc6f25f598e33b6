"""`ckptguard show`: one checkpoint, with everything that is known of it."""

import sys
from collections.abc import Iterator
from datetime import datetime

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, Span, Style, plain, write_lines
from ckptguard.cli.plain_text import printable
from ckptguard.cli.render import MARKS
from ckptguard.cli.service import checkpoint_named, service
from ckptguard.cli.service_rows import age_text, checkpoint_facts, headline, verdict_of
from ckptguard.client.answers import Check, CheckpointDetail, Validation
from ckptguard.client.decode import encode
from ckptguard.clock import SystemClock
from ckptguard.model.verdict import CheckStatus

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Show one checkpoint: verdict, checks, holds, and every validation there was.

\b
Examples:
  ckptguard show 42
  ckptguard show --run pretrain-7 --step 1200
  ckptguard show 42 --json
"""


@app.command(help=_HELP)
def show(
    checkpoint: service_arg.CheckpointId = None,
    *,
    run: service_arg.RunFilter = None,
    step: service_arg.StepFilter = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `show` and return its exit code."""
    with service() as client:
        seen = client.checkpoint(checkpoint_named(client, checkpoint, run=run, step=step))
    if json:
        write_json({"schema": SCHEMA, "checkpoint": encode(seen)})
    else:
        write_lines(render_checkpoint(seen, SystemClock().now()), sys.stdout)
    return ExitCode.OK


def render_checkpoint(seen: CheckpointDetail, now: datetime) -> Iterator[Line]:
    """Yield what is known of a checkpoint."""
    yield headline(seen)
    yield from checkpoint_facts(seen, now)
    checks = () if seen.in_force is None else seen.in_force.checks
    if checks:
        yield ()
    for check in checks:
        yield check_line(check)
    if seen.history:
        yield ()
        yield (Span("Validations", Style.STRONG),)
    for validation in seen.history:
        yield plain(f"  {history_line(validation, now)}")


def check_line(check: Check) -> Line:
    """Return one check as a line."""
    known = check.status in {status.value for status in CheckStatus}
    mark = MARKS[CheckStatus(check.status)] if known else MARKS[CheckStatus.UNKNOWN]
    word = mark.word if known else printable(check.status)
    return (
        Span(f"{mark.sign} ", mark.style),
        Span(f"{printable(check.name):<12}"),
        Span(f"{word:<9}", mark.style),
        Span(printable(check.reason or "")),
    )


def history_line(validation: Validation, now: datetime) -> str:
    """Return one validation as text: when, what came of it, and why it does not count where it does not."""
    when = age_text(validation.finished_at or validation.given_at or validation.requested_at, now)
    verdict = verdict_of(validation) if validation.verdict else validation.state
    force = (
        "" if validation.is_in_force is not False else f", not in force: {validation.why_not_in_force or '?'}"
    )
    return printable(f"{validation.id}  {verdict}, {validation.reason or 'asked for'}, {when}{force}")
