"""`ckptguard damage`: a named fault in a copy that the command itself makes."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, Span, Style, plain, write_lines
from ckptguard.cli.next_steps import shell_word
from ckptguard.cli.options import parse_length
from ckptguard.cli.plain_text import printable
from ckptguard.testing.case import Damage
from ckptguard.testing.damage import Aim, DamageKind, damage_copy

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Copy a checkpoint and put one named fault into the copy, for drills.

The original is only read; the destination must not exist. The same seed gives the same fault.

\b
Examples:
  ckptguard damage step-1200 /tmp/drill
  ckptguard damage step-1200 /tmp/drill --kind bit_flip --fqn model.norm.weight --bit 6
  ckptguard damage step-1200 /tmp/drill --kind truncate --file __1_0.distcp --length 4096
"""


@app.command(help=_HELP)
def damage(  # noqa: PLR0913 - one parameter for each option
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Checkpoint; only read.", show_default=False)
    ],
    destination: Annotated[
        Path, typer.Argument(metavar="DESTINATION", help="New folder for the copy.", show_default=False)
    ],
    *,
    kind: Annotated[DamageKind, typer.Option("--kind", help="Which fault.")] = DamageKind.BIT_FLIP,
    seed: Annotated[int, typer.Option("--seed", help="Decides what the options below leave open.")] = 0,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="Relative to SOURCE.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="First byte, in FILE.")] = None,
    bit: Annotated[
        int | None, typer.Option("--bit", min=0, max=7, help="Of the byte; 0 is the least significant.")
    ] = None,
    length: Annotated[
        str | None, typer.Option("--length", metavar="LENGTH", help="How much to zero or cut off.")
    ] = None,
    fqn: Annotated[str | None, typer.Option("--fqn", metavar="NAME", help="Tensor to hit.")] = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `damage` and return its exit code."""
    aim = Aim(
        file=file,
        offset=offset,
        bit=bit,
        length_bytes=None if length is None else parse_length("--length", length),
        fqn=fqn,
    )
    done = damage_copy(source, destination, kind=kind, seed=seed, aim=aim)
    if json:
        write_json({"schema": SCHEMA, "copy": str(destination), "seed": seed, "damage": asdict(done)})
    else:
        write_lines(render_damage(done, destination), sys.stdout)
    return ExitCode.OK


def render_damage(done: Damage, destination: Path) -> Iterator[Line]:
    """Yield what was done, and the command that should find it."""
    yield (Span(done.kind, Style.STRONG), Span(f" in the copy {printable(str(destination))}"))
    for label, value in (
        ("file", done.file or None),
        ("tensor", done.fqn),
        ("offset", done.offset),
        ("length", done.length_bytes),
        ("bit", done.bit),
        ("before", done.before),
        ("after", done.after),
        ("note", done.note or None),
    ):
        if value is not None:
            yield plain(f"  {label:<8}{printable(str(value))}")
    yield plain(f"next: ckptguard check {shell_word(str(destination))}")
