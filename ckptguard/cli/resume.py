"""`ckptguard resume`: the launcher's one line."""

import os
import shlex
import sys
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from ckptguard.cli import service_arguments as service_arg
from ckptguard.cli.exit_codes import EXIT_CODE_OF_ENDING, ExitCode, answer_to_error, exit_code_of_resume_error
from ckptguard.cli.json_output import SCHEMA, error_to_json, write_json
from ckptguard.cli.lines import write_text
from ckptguard.cli.options import parse_device, parse_duration
from ckptguard.cli.service import say, service
from ckptguard.cli.stores import stores_of
from ckptguard.client.attempt import attempt_key
from ckptguard.client.client import Client
from ckptguard.client.decode import encode
from ckptguard.clock import SystemClock
from ckptguard.errors import CkptGuardError, ConfigError
from ckptguard.model.resume import Ending, OnUnavailable
from ckptguard.operations.last_known import LastKnown, cache_folder
from ckptguard.operations.resume import Question, Resume
from ckptguard.operations.resume_decision import Flags
from ckptguard.operations.resume_environment import assignments, root_and_tag
from ckptguard.operations.resume_start import Started, start
from ckptguard.operations.resume_tracker import Tracker, tracker_of, write_tracker
from ckptguard.operations.store_view import StoreView

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Format(StrEnum):
    """What is printed of the checkpoint."""

    PATH = "path"
    STEP = "step"
    TAG = "tag"  # the name of its folder
    ENV = "env"  # assignments for `eval`
    JSON = "json"


_HELP = """Print the path of the last checkpoint proven good, or nothing.

Before it prints, it lists that checkpoint here and compares it with what was validated; one that
has changed is reported, and the next one is asked for. Everything but the path goes to stderr.

\b
Examples:
  ckptguard resume --run pretrain-7 --wait 120s
  path=$(ckptguard resume --run pretrain-7 --wait 10m) || exit $?
  target=$(ckptguard resume --run pretrain-7 --format env) || exit $?; eval "$target"
  ckptguard resume --run pretrain-7 --step 1200 --no-report --json
  ckptguard resume --run pretrain-7 --write-tracker megatron
  ckptguard resume --run pretrain-7 --on-unavailable last-known --store demo=/mnt/ckpts

\b
Exit codes:
   0  the path of a VALID checkpoint was printed (or: --allow-fresh and the run is empty)
  10  only a VALID below what was asked, or an answer from before; printed only if you said so
  20  time can change it: a verdict is pending, the service or the store gives no answer
  30  checkpoints exist and none is usable, or the run is unknown: a person must look
  40  the run is known and has no checkpoint
   2  usage
"""


@app.command(help=_HELP)
def resume(  # noqa: PLR0913 - one parameter for each option
    *,
    run: service_arg.RunOption,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="Wait while a newer one is being validated.")
    ] = "0s",
    format: Annotated[  # noqa: A002 - the option's name
        Format, typer.Option("--format", help="What to print of it.")
    ] = Format.PATH,
    min_assurance: service_arg.AssuranceOption = None,
    min_provenance: service_arg.ProvenanceOption = None,
    step: Annotated[int | None, typer.Option("--step", metavar="N", min=0, help="Only this step.")] = None,
    require_newest: Annotated[
        bool, typer.Option("--require-newest", help="Rather none than an older one while a newer is open.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help="Proven on such a device: cpu, cuda.")
    ] = None,
    max_age: Annotated[
        str | None, typer.Option("--max-age", metavar="DURATION", help="Validated no longer ago.")
    ] = None,
    accept_below: Annotated[
        bool, typer.Option("--accept-below", help="Print a VALID below what was asked, too; exit 10.")
    ] = False,
    allow_fresh: Annotated[
        bool, typer.Option("--allow-fresh", help="A run without any checkpoint starts from nothing; exit 0.")
    ] = False,
    fresh_despite: Annotated[
        str | None,
        typer.Option(
            "--fresh-despite",
            metavar="RUN",
            help="Start from nothing though checkpoints exist: the run's name again; audited.",
        ),
    ] = None,
    on_unavailable: Annotated[
        OnUnavailable, typer.Option("--on-unavailable", help="What to take if the service is away; exit 10.")
    ] = OnUnavailable.FAIL,
    store: service_arg.StoreOption = None,
    deadline: Annotated[
        str, typer.Option("--deadline", metavar="DURATION", help="Longest time for one answer.")
    ] = "30s",
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Only look: do not tell the service that the run starts.")
    ] = False,
    tracker: Annotated[
        Tracker | None,
        typer.Option("--write-tracker", help="Have the trainer's own pointer beside it name it, too."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print exactly one JSON object, also where there is no path.")
    ] = False,
) -> int:
    """Run `resume` and return its exit code."""
    if fresh_despite is not None and fresh_despite != run:
        msg = f"--fresh-despite must repeat the name of the run, {run!r}: it gives up its checkpoints"
        raise ConfigError(msg)
    question = Question(
        run=run,
        min_assurance=min_assurance,
        min_provenance=min_provenance,
        device=None if device is None else parse_device(device),
        step=step,
        max_age_s=None if max_age is None else parse_duration("--max-age", max_age),
        require_newest=require_newest,
        wait_s=parse_duration("--wait", wait),
    )
    flags = Flags(
        run=run,
        is_below_accepted=accept_below,
        is_fresh_allowed=allow_fresh,
        fresh_despite=fresh_despite,
        on_unavailable=on_unavailable,
    )
    view = StoreView(roots=stores_of(os.environ, store))
    attempt = attempt_key(os.environ)
    output = Output(run=run, format=format, is_json=json)
    with service(deadline_s=parse_duration("--deadline", deadline)) as client:
        asking = _asking(client, question, flags, view)
        try:
            started = start(asking, attempt=attempt, is_reported=not no_report)
            if tracker is not None:
                _lead_there(tracker, started)
        except CkptGuardError as error:
            return output.fail(error)
        return output.write(started)


def _asking(client: Client, question: Question, flags: Flags, view: StoreView) -> Resume:
    return Resume(
        client=client,
        question=question,
        flags=flags,
        view=view,
        last_known=LastKnown(cache_folder(os.environ)),
        clock=SystemClock(),
        tell=say,
    )


def _lead_there(kind: Tracker, started: Started) -> None:
    tracker = tracker_of(kind, started.found)
    if tracker is not None:
        write_tracker(tracker)
        say(f"{tracker.path} names {tracker.text}")
    elif started.found.path is not None:
        say(f"no tracker was written: {_MEANING[started.found.ending]}")


_MEANING: Final = {
    Ending.BELOW: "only a VALID below what was asked exists",
    Ending.TRY_AGAIN: "no checkpoint is proven good yet; time can change that",
    Ending.NONE_USABLE: "checkpoints exist, and none is usable: a person must look (ckptguard history)",
    Ending.UNKNOWN_RUN: "the service knows no such run: see that the name is right (ckptguard runs)",
    Ending.EMPTY: "the run has no checkpoint; --allow-fresh lets it start from nothing",
    Ending.FRESH: "no checkpoint is used: the run starts from nothing, as you said",
    Ending.LAST_KNOWN: "the service is away: this is its last known answer, not one of now",
    Ending.NEWEST_COMMITTED: "the service is away: the newest committed checkpoint; nothing of it is proven",
}


class Output:
    """Writes what a launcher reads: standard output stays empty unless a path is meant.

    Args:
        run: Its name.
        format: What to print of a checkpoint.
        is_json: One object in any case.
    """

    def __init__(self, *, run: str, format: Format, is_json: bool) -> None:  # noqa: A002
        self._run, self._format, self._is_json = run, format, is_json

    def write(self, started: Started) -> ExitCode:
        """Write how it ended, and return its exit code."""
        found = started.found
        code = EXIT_CODE_OF_ENDING[found.ending]
        if found.ending in _MEANING:
            say(_MEANING[found.ending])
        if self._is_json:
            write_json(self._object(started, code))
        elif found.path is not None:
            write_text(self._text(found.path, started, code), sys.stdout)
        return code

    def fail(self, error: CkptGuardError) -> ExitCode:
        """Say why nothing could be found out, and return the exit code of that."""
        code = exit_code_of_resume_error(error)
        answer = answer_to_error(error)._replace(exit_code=code)
        say(str(error))
        for problem in getattr(error, "problems", ()):
            say(f"  - {problem}")
        say(f"next: {answer.next_step}")
        if self._is_json:
            write_json({"schema": SCHEMA, "error": error_to_json(answer, error.code, str(error))})
        return code

    def _text(self, path: str, started: Started, code: ExitCode) -> str:
        if self._format is Format.STEP:
            return f"{started.found.step}\n"
        if self._format is Format.TAG:
            return f"{root_and_tag(path)[1]}\n"
        if self._format is Format.JSON:
            import json  # noqa: PLC0415 - this format only

            return f"{json.dumps(self._object(started, code))}\n"
        if self._format is Format.ENV:
            values = assignments(self._run, started)
            return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
        return f"{path}\n"

    def _object(self, started: Started, code: ExitCode) -> dict[str, Any]:
        found = started.found
        return {
            "schema": SCHEMA,
            "run": self._run,
            "ending": found.ending.value,
            "exit_code": int(code),
            "path": found.path,
            "step": found.step,
            "attempt": started.attempt,
            "branch": started.branch,
            "target": encode(found.target),
            "answer": encode(found.answer),
        }
