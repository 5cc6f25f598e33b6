"""`ckptguard adopt`: register what appears below a root, without a line in the training job."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Annotated, Final

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.adopt_answers import LineTeller, OnceAnswer
from ckptguard.cli.adopt_progress import adopt_progress
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.options import parse_duration
from ckptguard.cli.plain_text import printable
from ckptguard.cli.service import service
from ckptguard.cli.stores import stores_of
from ckptguard.clock import SystemClock
from ckptguard.errors import ConfigError
from ckptguard.model.policy import Depth
from ckptguard.operations.adopt.adoption import Adoption, Wish
from ckptguard.operations.adopt.folder_layout import parse_layout
from ckptguard.operations.adopt.loop import adopt_once, watch
from ckptguard.operations.adopt.registrar import Service
from ckptguard.operations.adopt.sweep import Naming

app = typer.Typer(add_completion=False, rich_markup_mode=None)

ALL: Final = "all"
_WATCH_DEADLINE_S: Final = 5.0
"""Of one request while watching: the next pass asks again anyway."""

_HELP = """Find the checkpoints below a root, and register each once it is committed and at rest.

No change in the training job. Found are folders with the names that trainers give (step-N, checkpoint-N,
iter_000000N, global_stepN, epoch=1-step=N, ...) or those of --layout. Only listings, metadata, manifests and
pointers are opened. The same again is the same, so it may be stopped and started at any time. Trackers and
`latest` pointers that are wrong are told, and change nothing.

\b
Examples:
  ckptguard adopt /checkpoints/run-7 --run run-7
  ckptguard adopt s3://bucket/run-7 --run run-7 --watch
  ckptguard adopt /checkpoints --layout '{run}/step-{step}' --watch --every 1m
  ckptguard adopt /checkpoints/old --run old --validate 0 --dry-run

\b
Exit codes:
   0  everything that is committed is registered; with --watch: ended by SIGTERM or Ctrl-C
  20  something is still being written, or store or service gave no answer: run it again
  30  refused, or not to be read    40  no committed checkpoint there    2  usage
"""


@app.command(help=_HELP)
def adopt(  # noqa: PLR0913 - one parameter for each option
    root: Annotated[
        str,
        typer.Argument(metavar="ROOT", help="Folder or URL that holds checkpoints.", show_default=False),
    ],
    *,
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Run of all of them; or {run} in --layout.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="PATTERN",
            help="Which folders are steps, e.g. '{run}/step-{step}'; * is any name.",
        ),
    ] = None,
    is_watching: Annotated[
        bool, typer.Option("--watch/--once", help="Go on, and register what comes.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="With --watch: look so often.")
    ] = "30s",
    settle: Annotated[
        str, typer.Option("--settle", metavar="DURATION", help="How long nothing in it may change before.")
    ] = "30s",
    validate: Annotated[
        str,
        typer.Option(
            "--validate",
            metavar="N|all",
            help="Validate the newest N of each run, and with --watch what comes; 0: none.",
        ),
    ] = "3",
    depth: arg.DepthOption = Depth.LOAD,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be registered; ask no service.")
    ] = False,
    store: service_arg.StoreOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object; with --watch, one on each line.")
    ] = False,
) -> int:
    """Run `adopt` and return its exit code."""
    every_s = parse_duration("--every", every)
    _refuse_contradictions(is_watching=is_watching, is_dry=dry_run, every_s=every_s)
    wish = Wish(
        target=root,
        naming=Naming(run=run, layout=None if layout is None else parse_layout(layout)),
        settle_s=parse_duration("--settle", settle),
        newest=_parse_count(validate),
        depth=depth,
        stores=stores_of(os.environ, store),
    )
    if dry_run:
        return _once(wish, None, is_json=json)
    if not is_watching:
        with service() as client:
            return _once(wish, client, is_json=json)
    with service(deadline_s=_WATCH_DEADLINE_S) as client:
        return _watch(wish, client, every_s=every_s, is_json=json)


def _once(wish: Wish, client: Service | None, *, is_json: bool) -> ExitCode:
    clock = SystemClock()
    answer = OnceAnswer(root=wish.target, is_dry=client is None)
    with adopt_progress(clock=clock) as advance:
        adoption = Adoption(wish, client, clock=clock, tell=answer.take, advance=advance)
        adopt_once(adoption, clock, answer.take)
    answer.write(is_json=is_json)
    return answer.exit_code


def _watch(wish: Wish, client: Service, *, every_s: float, is_json: bool) -> ExitCode:
    clock = SystemClock()
    tell = LineTeller(is_json=is_json)
    try:
        with _terminated_as_interrupted():
            adoption = Adoption(wish, client, clock=clock, tell=tell)
            watch(adoption, clock, tell, every_s=every_s, jitter=Random())  # noqa: S311 - spreads load
    except KeyboardInterrupt:
        return ExitCode.OK
    return ExitCode.OK


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """End on SIGTERM as on Ctrl-C, at once: whatever was not told yet is found again at the next start."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_contradictions(*, is_watching: bool, is_dry: bool, every_s: float) -> None:
    if is_watching and is_dry:
        msg = "--dry-run looks once; leave out --watch"
        raise ConfigError(msg)
    if every_s <= 0:
        msg = "--every takes a time above 0"
        raise ConfigError(msg)


def _parse_count(text: str) -> int | None:
    if text == ALL:
        return None
    if re.fullmatch(r"\d{1,9}", text, re.ASCII) is None:
        msg = f"--validate takes a number or {ALL!r}, not {printable(text)!r}"
        raise ConfigError(msg)
    return int(text)
