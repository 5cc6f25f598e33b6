"""The process edge: one executable, `ckptguard`."""

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import stamina.instrumentation
import typer

from ckptguard import __version__
from ckptguard.cli.commands import LazyGroup
from ckptguard.cli.exit_codes import ErrorAnswer, ExitCode, answer_to_error
from ckptguard.cli.plain_text import printable
from ckptguard.errors import CkptGuardError

app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,  # rich takes 0.1 s to import; help is plain text
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_HELP = """Prove that a distributed training checkpoint is valid, before anything resumes from it.

\b
Examples:
  ckptguard check /checkpoints/run-7/step-1200
  ckptguard check s3://bucket/run-7 --step all --json
  ckptguard manifest /checkpoints/run-7/step-1200 --write
  ckptguard register /checkpoints/run-7/step-1200 --run run-7 --step 1200
  ckptguard resume --run run-7 --wait 120s
  ckptguard doctor
"""

_INTERNAL = ErrorAnswer(
    ExitCode.UNUSABLE, "This is a fault of ckptguard itself; report it with the lines above."
)
_USAGE = ErrorAnswer(ExitCode.USAGE, "See `ckptguard --help`.")


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - typer's callback signature
    if is_asked:
        typer.echo(f"ckptguard {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True, help=_HELP)
def root(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Show help where no command is named."""
    del version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(ExitCode.USAGE)


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error has been said.

    Args:
        arguments: What follows `ckptguard`.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that this locale cannot write
    # Retries are no news for a person: what comes of them is in the report.
    # Where structlog is installed, stamina would write them to standard output.
    stamina.instrumentation.set_on_retry_hooks(())
    is_json = "--json" in arguments
    try:
        code: Any = app(args=list(arguments), prog_name="ckptguard", standalone_mode=False)
    except CkptGuardError as error:
        problems = getattr(error, "problems", ())
        return _say(answer_to_error(error), error.code, str(error), problems=problems, is_json=is_json)
    except typer.TyperException as error:
        return _say(_USAGE, "usage", error.format_message(), is_json=is_json)
    except Exception as error:  # noqa: BLE001 - the process edge: a fault of ours is never "VALID"
        traceback.print_exc()
        return _say(_INTERNAL, "internal", f"{type(error).__name__}: {error}", is_json=is_json)
    if code == ExitCode.INTERRUPTED:
        sys.stderr.write("\ninterrupted: the checkpoint was only read, nothing of it was changed\n")
    return int(code or 0)


def _say(answer: ErrorAnswer, code: str, message: str, *, problems: Sequence[str] = (), is_json: bool) -> int:
    if is_json:
        from ckptguard.cli.json_output import write_error  # noqa: PLC0415 - only when asked for

        write_error(answer, code, message, problems=problems)
        return answer.exit_code
    sys.stderr.write(f"ckptguard: {printable(message)}\n")
    for problem in problems:
        sys.stderr.write(f"  - {printable(problem)}\n")
    sys.stderr.write(f"next: {answer.next_step}\n")
    return answer.exit_code
