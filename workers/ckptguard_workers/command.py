"""`ckptguard worker`: validate what a service asks for, on this machine."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import structlog
import typer

from ckptguard.cli.log_lines import LogOption, form_for
from ckptguard.cli.standard_input import UntilStdinEnds, stop_when_input_ends
from ckptguard.client.address import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, find_service
from ckptguard.clock import SystemClock
from ckptguard.errors import CkptGuardError, ConfigError
from ckptguard_workers.assembly import WorkerSettings, run_worker
from ckptguard_workers.drain import DRAIN_S
from ckptguard_workers.environment import s3_options
from ckptguard_workers.machine_stores import MachineStore, parse_stores
from ckptguard_workers.showing import log_to_stderr

STORES_VARIABLE: Final = "CKPTGUARD_STORES"
_MAX_OPTIONS_BYTES: Final = 1 << 20
_MIB: Final = 1 << 20

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Validate what a service asks for, on this machine; never on a node of the training job.

The token comes from CKPTGUARD_TOKEN or a file; no child process gets it. Everybody on the machine can read
a command line, so a --token on it is moved out of sight by starting again without it.

SIGTERM: take no more work, finish what is held within --drain-s, then give it back, which costs no
attempt. A second SIGTERM: at once.

\b
Examples:
  ckptguard worker --url https://ckptguard:8080 --token-file /run/secrets/token --store demo=/data/ckpts
  torchrun --nproc-per-node 8 -m ckptguard_workers --device cuda --store demo=s3://bucket/ckpts
"""

Url = Annotated[str | None, typer.Option("--url", help=f"Address of the service; else {URL_VARIABLE}.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help=f"File of the token; else {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}."),
]
Token = Annotated[
    str | None, typer.Option("--token", help="The token itself; a file keeps it out of shell histories.")
]
Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="NAME=URL",
        help=f"Where a store lies here; NAME alone: where the service has it; '*': all of these. "
        f"Else {STORES_VARIABLE}.",
    ),
]
StoreOptions = Annotated[
    Path | None,
    typer.Option("--store-options", help='JSON file of credentials and endpoints: {"NAME": {"key": …}}.'),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", envvar="CKPTGUARD_WORKER_NAME", help="Of this worker, unique; else host and process."
    ),
]
Device = Annotated[str, typer.Option("--device", help="torch device to load onto, e.g. cpu, cuda, cuda:1.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Files read at the same time.")]
Window = Annotated[int | None, typer.Option("--window", min=1, help="Read buffers of one process, in MiB.")]
Memory = Annotated[
    int | None, typer.Option("--memory", min=256, help="Address space of the validation child, in MiB.")
]
DrainS = Annotated[float, typer.Option("--drain-s", min=0, help="Seconds for the work at hand at SIGTERM.")]


@app.command(help=_HELP)
def worker(  # noqa: PLR0913 - one parameter for each option
    *,
    url: Url = None,
    token: Token = None,
    token_file: TokenFile = None,
    store: Stores = None,
    store_options: StoreOptions = None,
    name: Name = None,
    device: Device = "cpu",
    jobs: Jobs = None,
    window: Window = None,
    memory: Memory = None,
    drain_s: DrainS = DRAIN_S,
    log: LogOption = None,
    until_stdin_ends: UntilStdinEnds = False,
) -> int:
    """Run `worker` and return its exit code."""
    if token is not None:
        start_again_without(token)
    showing = log_to_stderr(form_for(log, sys.stderr), clock=SystemClock())
    if until_stdin_ends:
        stop_when_input_ends()
    environment = dict(os.environ)
    if url is not None:
        environment[URL_VARIABLE] = url
    if token_file is not None:
        environment |= {TOKEN_VARIABLE: "", TOKEN_FILE_VARIABLE: str(token_file)}
    settings = WorkerSettings(
        address=find_service(environment, folder=Path()),
        stores=_stores(store, store_options, environment),
        name=name,
        device=device,
        jobs=jobs,
        window_bytes=window * _MIB if window is not None else None,
        memory_bytes=memory * _MIB if memory is not None else None,
        drain_s=drain_s,
        showing=showing,
    )
    for warning in settings.address.warnings:
        structlog.get_logger().warning(warning)
    run_worker(settings)
    return 0


def start_again_without(token: str) -> NoReturn:
    """Replace this process by itself, with the token in its environment instead of its command line."""
    words = words_without_token(sys.orig_argv[1:])
    os.execve(sys.executable, [sys.executable, *words], {**os.environ, TOKEN_VARIABLE: token})  # noqa: S606 - no shell


def words_without_token(words: Sequence[str]) -> list[str]:
    """Return a command line without `--token VALUE` and `--token=VALUE`."""
    kept = []
    rest = iter(words)
    for word in rest:
        if word == "--token":
            next(rest, None)
        elif not word.startswith("--token="):
            kept.append(word)
    return kept


def _stores(
    texts: list[str] | None, options_file: Path | None, environment: Mapping[str, str]
) -> dict[str, MachineStore]:
    named = texts or [text for text in environment.get(STORES_VARIABLE, "").split(",") if text.strip()]
    if not named:
        msg = f"no store: name at least one with --store NAME=URL, or in {STORES_VARIABLE}"
        raise ConfigError(msg)
    options = _read_options(options_file) if options_file is not None else {}
    return parse_stores(named, options, s3_options=s3_options(environment))


def _read_options(file: Path) -> dict[str, Mapping[str, object]]:
    try:
        with file.open("rb") as stream:
            value: Any = json.loads(stream.read(_MAX_OPTIONS_BYTES))
    except (OSError, ValueError) as error:
        msg = f"the options of stores cannot be read: {file}: {error}"
        raise ConfigError(msg) from error
    if not isinstance(value, dict) or not all(isinstance(options, dict) for options in value.values()):
        msg = f"{file} is no JSON object of objects, one for each store"
        raise ConfigError(msg)
    return value


def main() -> int:
    """Run the worker as `python -m ckptguard_workers`, which torchrun starts; return the exit code."""
    try:
        return int(app(prog_name="ckptguard_workers", standalone_mode=False) or 0)
    except (CkptGuardError, typer.TyperException) as error:
        sys.stderr.write(f"ckptguard worker: {error}\n")
        return 2
