"""`ckptguard revalidate`: ask for a new verdict."""

import sys
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import plain, write_lines
from ckptguard.cli.options import parse_duration
from ckptguard.cli.service import checkpoint_named, service
from ckptguard.cli.service_rows import verdict_of
from ckptguard.cli.verdict_wait import wait_and_tell
from ckptguard.client.decode import encode
from ckptguard.model.policy import Depth

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Ask for a new verdict about a checkpoint; where one is being found already, wait for that one.

\b
Examples:
  ckptguard revalidate --run pretrain-7 --step 1200 --wait 120s
  ckptguard revalidate 42 --depth content --reason 'disk was replaced'

\b
Exit codes:
   0  asked for; with --wait: VALID as deep as asked
  10  VALID, but lower    20  no verdict yet, or one that time may change    30  INVALID, or refused
  40  no such checkpoint   2  usage
"""


@app.command(help=_HELP)
def revalidate(
    checkpoint: service_arg.CheckpointId = None,
    *,
    run: service_arg.RunFilter = None,
    step: service_arg.StepFilter = None,
    depth: arg.DepthOption = Depth.LOAD,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Kept in the audit.")] = None,
    wait: service_arg.WaitOption = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `revalidate` and return its exit code."""
    wait_s = None if wait is None else parse_duration("--wait", wait)
    with service() as client:
        checkpoint_id = checkpoint_named(client, checkpoint, run=run, step=step)
        validation, code = client.request_validation(checkpoint_id, depth=depth, reason=reason), ExitCode.OK
        if wait_s is not None:
            validation, code = wait_and_tell(client, validation.id, wait_s=wait_s, depth=depth)
    if json:
        write_json({"schema": SCHEMA, "checkpoint_id": checkpoint_id, "validation": encode(validation)})
    else:
        verdict = verdict_of(validation) if validation.verdict else validation.state
        text = f"checkpoint {checkpoint_id}, validation {validation.id}: {verdict}"
        write_lines([plain(text)], sys.stdout)
    return code
