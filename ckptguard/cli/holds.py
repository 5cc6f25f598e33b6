"""`ckptguard pin`, `quarantine` and `release`: what an operator says about a checkpoint, with a reason."""

import sys
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import plain, write_lines
from ckptguard.cli.plain_text import printable
from ckptguard.cli.service import checkpoint_named, service
from ckptguard.cli.service_rows import verdict_of
from ckptguard.client.answers import Checkpoint
from ckptguard.client.decode import encode
from ckptguard.model.service import Hold

pin_app = typer.Typer(add_completion=False, rich_markup_mode=None)
quarantine_app = typer.Typer(add_completion=False, rich_markup_mode=None)
release_app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PIN_HELP = """Pin a checkpoint: it is never marked deleted. Says nothing about whether it is good.

\b
Examples:
  ckptguard pin --run pretrain-7 --step 1200 --reason 'released as v2'
  ckptguard pin 42 --reason 'needed for the paper'
"""

_QUARANTINE_HELP = """Quarantine a checkpoint: no launcher gets it, whatever its verdict.

\b
Examples:
  ckptguard quarantine --run pretrain-7 --step 1200 --reason 'loss spike after it'
  ckptguard quarantine 42 --reason 'wrong data mixture'
"""

_RELEASE_HELP = """Release a checkpoint from its holds: pinned, quarantined, suspect.

\b
Examples:
  ckptguard release --run pretrain-7 --step 1200 --reason 'false alarm'
  ckptguard release 42 --hold suspect --reason 'the node was bad, not the checkpoint'
"""


@pin_app.command(help=_PIN_HELP)
def pin(
    checkpoint: service_arg.CheckpointId = None,
    *,
    run: service_arg.RunFilter = None,
    step: service_arg.StepFilter = None,
    reason: service_arg.ReasonOption,
    json: arg.JsonOption = False,
) -> int:
    """Run `pin` and return its exit code."""
    return _hold(Hold.PINNED, checkpoint, run=run, step=step, reason=reason, is_json=json)


@quarantine_app.command(help=_QUARANTINE_HELP)
def quarantine(
    checkpoint: service_arg.CheckpointId = None,
    *,
    run: service_arg.RunFilter = None,
    step: service_arg.StepFilter = None,
    reason: service_arg.ReasonOption,
    json: arg.JsonOption = False,
) -> int:
    """Run `quarantine` and return its exit code."""
    return _hold(Hold.QUARANTINED, checkpoint, run=run, step=step, reason=reason, is_json=json)


@release_app.command(help=_RELEASE_HELP)
def release(
    checkpoint: service_arg.CheckpointId = None,
    *,
    run: service_arg.RunFilter = None,
    step: service_arg.StepFilter = None,
    reason: service_arg.ReasonOption,
    hold: Annotated[Hold | None, typer.Option("--hold", help="Only this one; default: all.")] = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `release` and return its exit code."""
    with service() as client:
        checkpoint_id = checkpoint_named(client, checkpoint, run=run, step=step)
        return _tell(client.release(checkpoint_id, reason=reason, hold=hold), is_json=json)


def _hold(
    hold: Hold, checkpoint: int | None, *, run: str | None, step: int | None, reason: str, is_json: bool
) -> int:
    with service() as client:
        checkpoint_id = checkpoint_named(client, checkpoint, run=run, step=step)
        return _tell(client.hold(checkpoint_id, hold=hold, reason=reason), is_json=is_json)


def _tell(checkpoint: Checkpoint, *, is_json: bool) -> int:
    if is_json:
        write_json({"schema": SCHEMA, "checkpoint": encode(checkpoint)})
        return ExitCode.OK
    held = printable(", ".join(checkpoint.holds)) or "not held"
    text = f"{printable(checkpoint.run)} step {checkpoint.step} (checkpoint {checkpoint.id}): {held}; "
    write_lines([plain(f"{text}verdict {verdict_of(checkpoint)}")], sys.stdout)
    return ExitCode.OK
