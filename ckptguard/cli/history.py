"""`ckptguard history`: the checkpoints of a run, newest first."""

import sys
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import is_live, write_lines
from ckptguard.cli.options import parse_duration
from ckptguard.cli.service import say, service
from ckptguard.cli.service_rows import HISTORY_TITLES, history_row
from ckptguard.cli.table import render_table
from ckptguard.client.decode import encode
from ckptguard.client.operator_calls import MAX_PAGE
from ckptguard.clock import SystemClock
from ckptguard.model.service import Hold, Lifecycle, ValidationState
from ckptguard.model.verdict import Assurance, Verdict

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """List the checkpoints of a run, newest first, with their verdicts.

\b
Examples:
  ckptguard history --run pretrain-7
  ckptguard history --run pretrain-7 --verdict INVALID --newer-than 24h
  ckptguard history --run pretrain-7 --min-step 1000 --json
"""


@app.command(help=_HELP)
def history(  # noqa: PLR0913 - one parameter for each option
    *,
    run: service_arg.RunOption,
    verdict: Annotated[Verdict | None, typer.Option("--verdict", help="Only of this verdict.")] = None,
    assurance: Annotated[Assurance | None, typer.Option("--assurance", help="Only of this one.")] = None,
    lifecycle: Annotated[Lifecycle | None, typer.Option("--lifecycle", help="Only in this state.")] = None,
    hold: Annotated[Hold | None, typer.Option("--hold", help="Only held so.")] = None,
    state: Annotated[
        ValidationState | None, typer.Option("--state", help="Only with a validation in this state.")
    ] = None,
    min_step: Annotated[int | None, typer.Option("--min-step", min=0, help="This step and later.")] = None,
    max_step: Annotated[int | None, typer.Option("--max-step", min=0, help="This step and earlier.")] = None,
    newer_than: Annotated[
        str | None, typer.Option("--newer-than", metavar="DURATION", help="Saved no longer ago; e.g. 24h.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="DURATION", help="Saved longer ago.")
    ] = None,
    limit: service_arg.LimitOption = 50,
    json: arg.JsonOption = False,
) -> int:
    """Run `history` and return its exit code."""
    now = SystemClock().now()
    with service() as client:
        client.run(run)  # an unknown run is an error, not an empty list
        rows = client.checkpoints(
            run=run,
            verdict=verdict,
            assurance=assurance,
            lifecycle=lifecycle,
            hold=hold,
            state=state,
            min_step=min_step,
            max_step=max_step,
            newer_than=_before(now, "--newer-than", newer_than),
            older_than=_before(now, "--older-than", older_than),
            limit=min(limit + 1, MAX_PAGE),
        )
        found = list(islice(rows, limit + 1))
    shown, has_more = found[:limit], len(found) > limit
    if json:
        write_json({"schema": SCHEMA, "checkpoints": encode(shown), "has_more": has_more})
        return ExitCode.OK
    table = render_table(
        HISTORY_TITLES, [history_row(row, now) for row in shown], is_terminal=is_live(sys.stdout)
    )
    write_lines(table, sys.stdout)
    if has_more:
        say(f"there are more: --limit {2 * limit}, or narrow it down")
    return ExitCode.OK


def _before(now: datetime, option: str, text: str | None) -> datetime | None:
    return None if text is None else now - timedelta(seconds=parse_duration(option, text))
