"""`--json`: exactly one object on standard output, whatever happens (docs/report.md)."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckptguard.cli.exit_codes import ErrorAnswer
from ckptguard.cli.lines import write_text

SCHEMA: Final = 1


def write_json(value: Mapping[str, Any]) -> None:
    """Write one object: ASCII only, so that no name in it can speak to a terminal."""
    text = json.dumps(value, ensure_ascii=True, indent=2, allow_nan=False)
    write_text(f"{text}\n", sys.stdout)


def write_error(answer: ErrorAnswer, code: str, message: str, *, problems: Sequence[str] = ()) -> None:
    """Write the object of a command that could not answer.

    Args:
        answer: Exit code and next step.
        code: Stable name of the error.
        message: What happened.
        problems: All of them, where the error has several.
    """
    write_json({"schema": SCHEMA, "error": error_to_json(answer, code, message, problems=problems)})


def error_to_json(
    answer: ErrorAnswer, code: str, message: str, *, problems: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the value of `error`."""
    return {
        "code": code,
        "message": message,
        "exit_code": int(answer.exit_code),
        "next_step": answer.next_step,
        "problems": list(problems),
    }
