"""`ckptguard spool`: registrations of training jobs that wait, or that the service would not have."""

import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, plain, write_lines
from ckptguard.cli.plain_text import printable
from ckptguard.cli.service import say
from ckptguard.client.decode import encode
from ckptguard.errors import FormatError
from ckptguard.integrations import incidents
from ckptguard.integrations.registration.entry import Entry
from ckptguard.integrations.registration.sender import Sender, connect
from ckptguard.integrations.registration.spool import Spool, spool_folder

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_SHOWN_FACTS: Final = ("run", "step", "save_id", "saved_at", "manifest_at", "service", "refused")

_HELP = """List the registrations of guarded saves that wait on this machine; --send sends them.

A training job sends them by itself; what is left when it ends is sent by the next job that saves,
or here. An entry is sent only while its own save still stands at its place. Those that the service
refused are kept with the reason, and are not sent again.

\b
Examples:
  ckptguard spool
  ckptguard spool --send

\b
Exit codes:
  0  nothing waits    20  some wait: the service is away, or the checkpoint has not its final name
"""


@app.command(help=_HELP)
def spool(
    *,
    send: Annotated[bool, typer.Option("--send", help="Send what waits, now.")] = False,
    json: arg.JsonOption = False,
) -> int:
    """Run `spool` and return its exit code."""
    folder = Spool(spool_folder(os.environ))
    if send:
        Sender(folder, connect=connect).send_all()
    waiting = list(_entries(folder, folder.names(), is_refused=False))
    refused = list(_entries(folder, folder.refused(), is_refused=True))
    if json:
        counted = incidents.counters().get("registrations_sent", 0)
        write_json(
            {
                "schema": SCHEMA,
                "folder": str(folder.folder),
                "sent": counted,
                "waiting": [_facts(entry) for entry in waiting],
                "refused": [_facts(entry) for entry in refused],
            }
        )
    else:
        write_lines(_render(folder, waiting, refused), sys.stdout)
    return ExitCode.TRY_AGAIN if waiting else ExitCode.OK


def _entries(spool: Spool, names: list[str], *, is_refused: bool) -> Iterator[Entry]:
    for name in names:
        try:
            entry = spool.read_refused(name) if is_refused else spool.read(name)
        except (FormatError, OSError) as error:
            say(f"{spool.folder}/{name}: {error}")
            continue
        if entry is not None:
            yield entry


def _facts(entry: Entry) -> dict[str, Any]:
    facts: dict[str, Any] = encode({name: getattr(entry, name) for name in _SHOWN_FACTS})
    return facts


def _render(spool: Spool, waiting: list[Entry], refused: list[Entry]) -> Iterator[Line]:
    yield plain(f"{len(waiting)} waiting, {len(refused)} refused in {printable(str(spool.folder))}")
    for entry in waiting:
        to = f", for {printable(entry.service)}" if entry.service else ""
        yield plain(f"waits: {_named(entry)}{to}")
    for entry in refused:
        yield plain(f"refused: {_named(entry)}: {printable(entry.refused or 'not an entry')}")


def _named(entry: Entry) -> str:
    return f"{printable(entry.run)} step {entry.step}, saved {entry.saved_at:%Y-%m-%d %H:%M:%S} UTC"
