"""`ckptguard doctor`: what this machine can check, and what is missing for the rest."""

import json as jsonlib
import os
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, Span, Style, write_lines
from ckptguard.cli.machine import Health, Row, installed_version, look_at_machine
from ckptguard.cli.plain_text import printable, seconds_text
from ckptguard.cli.service_health import look_at_service
from ckptguard.errors import CkptGuardError
from ckptguard.model.finding import CheckName
from ckptguard.model.policy import Policy
from ckptguard.operations.validate import validate

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """See what this machine can check, what is missing, and whether the service is fine.

Makes a checkpoint of four bytes in a temporary folder and proves it, canary child included. Where a
service is known, asks it: is it ready, is the token good, are its stores here, do workers work.

\b
Examples:
  ckptguard doctor
  ckptguard doctor --device cuda --json

\b
Exit codes:
   0  all that is there works    30  something is BAD: it does not, or runs into trouble
"""

_STYLES = {Health.OK: Style.GOOD, Health.ABSENT: Style.DOUBT, Health.BAD: Style.BAD}


@app.command(help=_HELP)
def doctor(*, device: arg.DeviceOption = "cpu", json: arg.JsonOption = False) -> int:
    """Run `doctor` and return its exit code."""
    here = Path.cwd()
    rows = [*look_at_machine(here), _self_test(device), *look_at_service(os.environ, here)]
    if json:
        write_json({"schema": SCHEMA, "rows": [row._asdict() for row in rows]})
    else:
        write_lines(render_rows(rows), sys.stdout)
    return ExitCode.UNUSABLE if any(row.health is Health.BAD for row in rows) else ExitCode.OK


def render_rows(rows: Sequence[Row]) -> Iterator[Line]:
    """Yield one line for each row, and one for what it means."""
    for row in rows:
        yield (
            Span(f"{row.name:<17}"),
            Span(f"{row.health.value:<8}", _STYLES[row.health]),
            Span(printable(row.value)),
        )
        if row.consequence:
            yield (Span(" " * 25), Span(printable(row.consequence), Style.FAINT))


def _self_test(device: str) -> Row:
    """Prove a checkpoint of one tensor; without torch nobody loads it, and that is said above."""
    with tempfile.TemporaryDirectory(prefix="ckptguard-doctor-") as folder:
        (Path(folder) / "model.safetensors").write_bytes(_smallest_safetensors())
        try:
            report = validate(folder, policy=Policy(device=device, settle_s=0.0))
        except CkptGuardError as error:
            return Row("self test", Health.BAD, str(error), "no check can run here")
    load = next(check for check in report.checks if check.name is CheckName.LOAD)
    value = f"{load.counts.get('items', 0)} of 1 tensors loaded, {seconds_text(report.seconds)}"
    if report.device is not None and load.counts.get("items") == 1:
        return Row("self test", Health.OK, f"{value}, on {report.device}")
    health = Health.ABSENT if installed_version("torch") is None else Health.BAD
    return Row("self test", health, value, load.reason)


def _smallest_safetensors() -> bytes:
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = jsonlib.dumps({"weight": tensor}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.0)
