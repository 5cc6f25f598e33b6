"""`ckptguard runs`: every run, its newest VALID, and what a failure now would cost."""

import sys
from itertools import islice

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import is_live, write_lines
from ckptguard.cli.service import service
from ckptguard.cli.service_rows import RUN_TITLES, run_row
from ckptguard.cli.table import render_table
from ckptguard.client.decode import encode
from ckptguard.clock import SystemClock

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """List the runs: newest VALID, verdicts, and what a failure now would cost.

\b
Examples:
  ckptguard runs
  ckptguard runs --json
"""


@app.command(help=_HELP)
def runs(*, limit: service_arg.LimitOption = 200, json: arg.JsonOption = False) -> int:
    """Run `runs` and return its exit code."""
    with service() as client:
        found = list(islice(client.runs(), limit))
    if json:
        write_json({"schema": SCHEMA, "runs": encode(found)})
        return ExitCode.OK
    now = SystemClock().now()
    rows = [run_row(run, now) for run in found]
    write_lines(render_table(RUN_TITLES, rows, is_terminal=is_live(sys.stdout)), sys.stdout)
    return ExitCode.OK
