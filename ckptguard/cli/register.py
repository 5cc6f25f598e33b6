"""`ckptguard register`: tell the service of a checkpoint that is written."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, plain, write_lines
from ckptguard.cli.options import parse_duration
from ckptguard.cli.plain_text import printable
from ckptguard.cli.service import service
from ckptguard.cli.service_rows import verdict_of
from ckptguard.cli.stores import stores_of
from ckptguard.cli.verdict_wait import wait_and_tell
from ckptguard.client.answers import Registered, Validation
from ckptguard.client.decode import encode
from ckptguard.model.policy import Depth
from ckptguard.operations.register import Registration, Wish, registrations

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Register a checkpoint: a worker validates it, and launchers may then get it.

A manifest that lies beside the shards is sent along, as `read_back`: it proves that nothing
changed since. That all files are of one save, only the writer's own word proves: a guarded save,
or --manifest FILE. Without a manifest, format, number and length of the files are sent. Shards
are only listed, not read. The same again is the same registration.

\b
Examples:
  ckptguard register /checkpoints/run-7/step-1200 --run run-7 --step 1200
  ckptguard register s3://bucket/run-7/step-1200 --run run-7 --step 1200 --wait 10m
  ckptguard register step-1200 --run run-7 --manifest ckptguard.manifest.json --no-validate

\b
Exit codes:
   0  registered; with --wait: VALID as deep as asked
  10  VALID, but lower    20  no verdict yet, or one that time may change    30  INVALID, or refused
  40  no checkpoint there  2  usage
"""


@app.command(help=_HELP)
def register(  # noqa: PLR0913 - one parameter for each option
    target: arg.Target,
    *,
    run: service_arg.RunOption,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="N", min=0, help="Default: what the manifest or name tells."),
    ] = None,
    save_id: Annotated[
        str | None, typer.Option("--save-id", metavar="ID", help="Tells two saves of one step apart.")
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", help="Instead of the one beside the shards.")
    ] = None,
    depth: arg.DepthOption = Depth.LOAD,
    no_validate: Annotated[bool, typer.Option("--no-validate", help="Only register.")] = False,
    wait: service_arg.WaitOption = None,
    store: service_arg.StoreOption = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `register` and return its exit code."""
    wait_s = None if wait is None else parse_duration("--wait", wait)
    wish = Wish(
        target=target,
        run=run,
        step=step,
        save_id=save_id,
        manifest=manifest,
        stores=stores_of(os.environ, store),
        depth=depth,
        is_validated=not no_validate,
    )
    asked = registrations(wish)
    with service() as client:
        answers = [client.send(registration.call) for registration in asked]
        validation, code = answers[-1].validation, ExitCode.OK
        if wait_s is not None and validation is not None:
            validation, code = wait_and_tell(client, validation.id, wait_s=wait_s, depth=depth)
    if json:
        value = {"schema": SCHEMA, "registered": encode(answers), "validation": encode(validation)}
        write_json(value)
    else:
        write_lines(_render(asked, answers, validation), sys.stdout)
    return code


def _render(
    asked: tuple[Registration, ...], answers: list[Registered], validation: Validation | None
) -> Iterator[Line]:
    for registration, answer in zip(asked, answers, strict=True):
        manifest = registration.manifest
        kind = "without a manifest" if manifest is None else f"manifest of origin {manifest.origin.value}"
        part = f", part {printable(manifest.part)}" if manifest is not None and manifest.part else ""
        known = "registered" if answer.is_new else "was registered before"
        checkpoint = answer.checkpoint
        yield plain(
            f"{printable(checkpoint.run)} step {checkpoint.step}: {known} as checkpoint {checkpoint.id}"
            f" ({kind}{part})"
        )
        if answer.superseded:
            yield plain(f"superseded: {', '.join(map(str, answer.superseded))}")
        for note in answer.notes:
            yield plain(f"note: {printable(note)}")
    if validation is not None:
        verdict = verdict_of(validation) if validation.verdict else validation.state
        yield plain(f"validation {validation.id}: {verdict}")
