"""`ckptguard restarted`: what became of a start."""

import os
import sys
from typing import Annotated, Final

import typer

from ckptguard.cli import check_arguments as arg
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import plain, write_lines
from ckptguard.cli.service import service
from ckptguard.client.attempt import ATTEMPT_VARIABLE, attempt_key, is_attempt_known
from ckptguard.client.client import Client
from ckptguard.errors import ConfigError
from ckptguard.model.service import RestartOutcome
from ckptguard.operations.restart_hosts import hosts_of
from ckptguard.operations.restart_report import (
    Ended,
    Origin,
    outcome_of_failure,
    report_end,
    steps_saved,
    steps_since,
)
from ckptguard.operations.resume_environment import RUN_VARIABLE, Handed, handed_down

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = """Tell what became of a start that `resume` gave a checkpoint to.

Failures while loading, or before the run's number of steps (`ckptguard run set --min-steps`), count
against the checkpoint; three of them, on hosts that have nothing in common, and the next `resume`
goes one step back. A start that went on clears them.

Which run, which start and from where is found in the variables of `resume --format env`, the start
also in those of Slurm and torchrun.

\b
Examples:
  ckptguard restarted --ok --step 1220
  ckptguard restarted --failed --step 1203 --reason 'loss is NaN'
  ckptguard restarted --run pretrain-7 --failed --loading

\b
Exit codes:
   0  told                      20  the service gives no answer
  30  refused                   40  no such run        2  usage
"""
_WORDS: Final = {
    RestartOutcome.PROGRESSED: "went on",
    RestartOutcome.FAILED_LOADING: "failed while loading",
    RestartOutcome.FAILED_EARLY: "failed",
}


@app.command(help=_HELP)
def restarted(  # noqa: PLR0913 - one parameter for each option
    *,
    ok: Annotated[bool, typer.Option("--ok", help="It went on for long enough.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="It failed.")] = False,
    loading: Annotated[bool, typer.Option("--loading", help="Before its first step.")] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="The training run; default: CKPTGUARD_RUN.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", min=0, help="The step that it reached.")
    ] = None,
    from_step: Annotated[
        int | None,
        typer.Option(
            "--from-step", metavar="N", min=0, help="Where it began; default: CKPTGUARD_RESUME_STEP."
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Kept in the audit.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="That took part; default: Slurm's list, or this one."),
    ] = None,
    attempt: Annotated[
        str | None,
        typer.Option(
            "--attempt", metavar="NAME", help=f"The start; default: {ATTEMPT_VARIABLE}, Slurm's, torchrun's."
        ),
    ] = None,
    json: arg.JsonOption = False,
) -> int:
    """Run `restarted` and return its exit code."""
    if ok == failed or (loading and not failed):
        msg = "say --ok or --failed, one of them; --loading goes with --failed"
        raise ConfigError(msg)
    handed = handed_down(os.environ)
    name = run or handed.run
    if name is None:
        msg = f"name the run: --run NAME, or {RUN_VARIABLE}"
        raise ConfigError(msg)
    key = attempt or _known_attempt()
    origin = _origin(handed, name, from_step)
    steps_done = None if step is None else steps_since(origin, step)
    hosts = tuple(host) if host else hosts_of(os.environ)
    with service() as client:
        if failed and steps_done is None and not loading:
            steps_done = steps_saved(client, name, origin)
        outcome = (
            RestartOutcome.PROGRESSED if ok else outcome_of_failure(steps_done=steps_done, is_loading=loading)
        )
        ended = Ended(attempt=key, outcome=outcome, steps_done=steps_done, reason=reason, hosts=hosts)
        return _tell(client, name, ended, is_json=json)


def _tell(client: Client, run: str, ended: Ended, *, is_json: bool) -> ExitCode:
    told = report_end(client, run, ended)
    if is_json:
        write_json(
            {
                "schema": SCHEMA,
                "run": run,
                "attempt": ended.attempt,
                "outcome": ended.outcome.value,
                "steps_done": ended.steps_done,
                "branch": told.branch,
            }
        )
    else:
        steps = "" if ended.steps_done is None else f" after {ended.steps_done} steps"
        text = f"told: start {ended.attempt} of {run} {_WORDS[ended.outcome]}{steps}"
        write_lines([plain(text)], sys.stdout)
    return ExitCode.OK


def _known_attempt() -> str:
    """Return the name of this start.

    Raises:
        ConfigError: It has none: a report under a name by chance would belong to no start.
    """
    if not is_attempt_known(os.environ):
        msg = f"which start? --attempt NAME, or {ATTEMPT_VARIABLE} as `resume --format env` gives it"
        raise ConfigError(msg)
    return attempt_key(os.environ)


def _origin(handed: Handed, run: str, from_step: int | None) -> Origin:
    """Return where the start began; what was handed down counts for its own run only."""
    is_same = handed.run in {None, run}
    step = handed.step if from_step is None and is_same else from_step
    return Origin(step=step, branch=handed.branch if is_same else None)
