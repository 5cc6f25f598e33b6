"""`ckptguard announce`: say that a save begins."""

import os
import sys
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import plain, write_lines
from ckptguard.cli.options import parse_duration
from ckptguard.cli.plain_text import printable
from ckptguard.cli.service import service
from ckptguard.cli.stores import stores_of
from ckptguard.client.decode import encode
from ckptguard.operations.register import announced_location

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Say that a save begins at a place, which need not be there yet.

If it is neither registered nor announced again in time, it counts as incomplete: the job died while
it saved. What was registered at that place before is superseded at once.

\b
Examples:
  ckptguard announce /checkpoints/run-7/step-1300 --run run-7 --step 1300
  ckptguard announce s3://bucket/run-7/step-1300 --run run-7 --step 1300 --keep-alive 30m
"""


@app.command(help=_HELP)
def announce(
    target: arg.Target,
    *,
    run: service_arg.RunOption,
    step: service_arg.StepOption,
    save_id: Annotated[
        str | None, typer.Option("--save-id", metavar="ID", help="Tells two saves of one step apart.")
    ] = None,
    keep_alive: Annotated[
        str, typer.Option("--keep-alive", metavar="DURATION", help="Incomplete without news for so long.")
    ] = "10m",
    store: service_arg.StoreOption = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `announce` and return its exit code."""
    location = announced_location(target, stores_of(os.environ, store))
    keep_alive_s = parse_duration("--keep-alive", keep_alive)
    with service() as client:
        announced = client.announce(
            run, step=step, location=location, save_id=save_id, keep_alive_s=keep_alive_s
        )
    if json:
        write_json({"schema": SCHEMA, "checkpoint": encode(announced)})
    else:
        text = f"{printable(announced.run)} step {announced.step}: announced as checkpoint {announced.id}"
        write_lines([plain(text)], sys.stdout)
    return ExitCode.OK
