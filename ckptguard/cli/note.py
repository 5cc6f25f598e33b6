"""`ckptguard note`: what a person knows about a checkpoint, in its history."""

import sys
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import plain, write_lines
from ckptguard.cli.service import checkpoint_named, service
from ckptguard.client.decode import encode

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Write down what is known about a checkpoint. It changes nothing that a launcher gets.

\b
Examples:
  ckptguard note --run pretrain-7 --step 1200 --text 'loss spike 300 steps later, data shard 17'
  ckptguard note 42 --text 'evaluated: 61.2 on the held-out set'
"""


@app.command(help=_HELP)
def note(
    checkpoint: service_arg.CheckpointId = None,
    *,
    run: service_arg.RunFilter = None,
    step: service_arg.StepFilter = None,
    text: Annotated[
        str, typer.Option("--text", metavar="TEXT", help="Shown in its history.", show_default=False)
    ],
    json: arg.JsonOption = False,
) -> int:
    """Run `note` and return its exit code."""
    with service() as client:
        checkpoint_id = checkpoint_named(client, checkpoint, run=run, step=step)
        written = client.note(checkpoint_id, text=text)
    if json:
        write_json({"schema": SCHEMA, "note": encode(written)})
    else:
        write_lines([plain(f"noted about checkpoint {checkpoint_id}")], sys.stdout)
    return ExitCode.OK
