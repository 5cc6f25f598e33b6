"""`ckptguard manifest`: make a manifest of what is stored, or show one."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, plain, write_lines, write_text
from ckptguard.cli.options import parse_step
from ckptguard.cli.plain_text import bytes_text, count_text, printable
from ckptguard.cli.progress_display import showing_progress
from ckptguard.clock import SystemClock
from ckptguard.errors import ConfigError
from ckptguard.formats.discover import discover
from ckptguard.formats.manifest_json import to_json
from ckptguard.model.manifest import (
    MANIFEST_NAME,
    Manifest,
    Origin,
    Role,
    identity,
    is_manifest_path,
    portability_notes,
)
from ckptguard.model.policy import Limits
from ckptguard.operations.manifest import ReadBack, load_manifest, make_manifest, write_manifest
from ckptguard.storage.listing import list_folder
from ckptguard.storage.open_url import open_location

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Make a manifest of what is stored, or show one.

A manifest made here reads every byte back (`origin: read_back`): it proves that nothing changed
since, not that all files came from one save. It goes to standard output, or with --write beside
the shards, never over another one.

\b
Examples:
  ckptguard manifest /checkpoints/run-7/step-1200 --write
  ckptguard manifest s3://bucket/run-7/step-1200 > run-7-1200.manifest.json
  ckptguard manifest --show /checkpoints/run-7/step-1200/ckptguard.manifest.json
"""

_MEANING_OF_ORIGIN = {
    Origin.SAVE: "made by the writer while it saved",
    Origin.READ_BACK: "read back from storage",
}


@app.command(help=_HELP)
def manifest(
    target: Annotated[str | None, typer.Argument(metavar="PATH_OR_URL", show_default=False)] = None,
    *,
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Default: the name of the folder above.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="N", help="Default: what the folder's name tells.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help=f"Write it as {MANIFEST_NAME} beside the shards.")
    ] = False,
    show: Annotated[Path | None, typer.Option("--show", metavar="FILE", help="Show this manifest.")] = None,
    root: arg.RootOption = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `manifest` and return its exit code."""
    if (target is None) == (show is None):
        msg = "name a checkpoint, or a manifest with --show FILE"
        raise ConfigError(msg)
    if show is not None:
        _tell(load_manifest(show), str(show), is_json=json)
        return ExitCode.OK
    place = _place_for(str(target)) if write else None
    made = read_back(str(target), run=run, step=None if step is None else parse_step(step), root=root)
    if place is None:
        write_text(to_json(made).decode(), sys.stdout)
        return ExitCode.OK
    write_manifest(place, made)
    _tell(made, str(place), is_json=json)
    return ExitCode.OK


def read_back(target: str, *, run: str | None, step: int | None, root: Path | None) -> Manifest:
    """Read every byte of the checkpoint that a target means, and list it.

    Args:
        target: Path or URL of one checkpoint.
        run: Lineage to write down; None: the name of the folder above.
        step: Step to write down; None: what the folder's name tells.
        root: Links may lead below this.

    Raises:
        ConfigError: Run or step are not given and cannot be told.
        StoreError, ManifestFormatError, LimitExceededError: As `make_manifest`.
    """
    store, prefix = open_location(target, root=root)
    limits = Limits()
    listing = list_folder(store, prefix, max_files=limits.max_files)
    checkpoint = discover(store, listing, limits)
    with showing_progress() as listener:
        return make_manifest(
            store,
            prefix,
            run=run or _name_above(f"{store.url}/{prefix}"),
            step=_told_step(step, checkpoint.step),
            clock=SystemClock(),
            progress=listener,
            how=ReadBack(layouts=checkpoint.layouts),
        )


def _told_step(given: int | None, found: int | None) -> int:
    step = found if given is None else given
    if step is None:
        msg = "the folder's name tells no step; give one: --step N"
        raise ConfigError(msg)
    return step


def _name_above(url: str) -> str:
    name = url.rstrip("/").rpartition("/")[0].rpartition("/")[2]
    if not name:
        msg = "no folder above tells the run; give one: --run NAME"
        raise ConfigError(msg)
    return name


def _place_for(target: str) -> Path:
    """Return where the manifest goes, before anything is read."""
    folder = Path(target)
    if not folder.is_dir():
        msg = "--write is for a local folder; elsewhere, redirect standard output to a file"
        raise ConfigError(msg)
    known = sorted(path.name for path in folder.iterdir() if is_manifest_path(path.name))
    if known:
        msg = (
            f"{folder / known[0]} is there already, and may prove more than a new one could; remove it first"
        )
        raise ConfigError(msg)
    return folder / MANIFEST_NAME


def _tell(manifest: Manifest, file: str, *, is_json: bool) -> None:
    if is_json:
        roles = Counter(entry.role.value for entry in manifest.files)
        write_json(
            {
                "schema": SCHEMA,
                "file": file,
                "identity": str(identity(manifest)),
                "origin": manifest.origin.value,
                "run": manifest.run,
                "step": manifest.step,
                "save_id": manifest.save_id,
                "format": manifest.format,
                "files": dict(roles),
                "bytes_total": sum(entry.length_bytes for entry in manifest.files),
                "notes": list(portability_notes(manifest)),
            }
        )
        return
    write_lines(render_manifest(manifest, file), sys.stdout)


def render_manifest(manifest: Manifest, file: str) -> Iterator[Line]:
    """Yield what a manifest says, for a person."""
    total = sum(entry.length_bytes for entry in manifest.files)
    roles = Counter(entry.role for entry in manifest.files)
    counted = ", ".join(f"{roles[role]} {role.value}" for role in Role if roles[role])
    for label, value in (
        ("manifest", file),
        ("identity", str(identity(manifest))),
        ("origin", f"{manifest.origin.value}: {_MEANING_OF_ORIGIN[manifest.origin]}"),
        ("run", f"{manifest.run}, step {manifest.step}, save {manifest.save_id}"),
        ("made", f"{manifest.created_at.isoformat()} by ckptguard {manifest.writer.ckptguard}"),
        ("format", manifest.format),
        ("files", f"{count_text(len(manifest.files), 'files')} ({counted}), {bytes_text(total)}"),
        *(("note", note) for note in portability_notes(manifest)),
    ):
        yield plain(f"{label:<10}{printable(value)}")
