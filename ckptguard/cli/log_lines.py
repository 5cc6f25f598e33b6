"""Logs in two forms: JSON for programs, and for a person at a terminal the few lines that matter."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TextIO

import typer

from ckptguard.cli.plain_text import bytes_text, printable, seconds_text

STARTED: Final = "started"
"""Event of a worker that is about to ask for work: `worker`, `service`, `stores`."""
VERDICT: Final = "verdict"
"""Event of a verdict that was handed in: `checkpoint`, as `RUN step N`, `verdict`, `basis`, `assurance`,
`code`, `bytes_read`, `seconds`."""
ANSWERS_AGAIN: Final = "the service answers again"
AT_KEY: Final = "at"
"""Key of the time in every logged event, ISO 8601 in UTC."""
_MAX_LINE_CHARS: Final = 2000
_LOUD: Final = frozenset({"warning", "error", "critical"})
_MULTILINE: Final = ("traceback", "exception")
_OF_EVERY_EVENT: Final = frozenset({"event", "level", AT_KEY, *_MULTILINE})


class LogForm(StrEnum):
    """Who reads the logs."""

    HUMAN = "human"
    JSON = "json"


LogOption = Annotated[
    LogForm | None,
    typer.Option(
        "--log",
        help="Logs on standard error: `human`, a line for what matters, or `json`, an object a line with "
        "everything. Default: `human` on a terminal, else `json`.",
        show_default=False,
    ),
]


def form_for(asked: LogForm | None, stream: TextIO) -> LogForm:
    """Return the form of logs on a stream: what was asked for, else what suits it."""
    if asked is not None:
        return asked
    return LogForm.HUMAN if stream.isatty() else LogForm.JSON


def lines_of(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a person reads of one logged event: nothing, where it is no news.

    Warnings and errors are always news. Whatever the event holds, the lines are printable.

    Args:
        event: As logged, `event`, `level` and `at` among its keys.
    """
    name = str(event.get("event"))
    level = str(event.get("level"))
    if level in _LOUD:
        text = f"{level}: {name}{_details(event)}"
    elif name in _NEWS:
        text = _NEWS[name](event)
    else:
        return
    yield printable(f"{_time_of_day(event)}{text}", max_chars=_MAX_LINE_CHARS)
    for key in _MULTILINE:
        for line in str(event.get(key) or "").splitlines():
            yield f"  {printable(line, max_chars=_MAX_LINE_CHARS)}"


def _time_of_day(event: Mapping[str, Any]) -> str:
    try:
        return f"{datetime.fromisoformat(event[AT_KEY]).astimezone():%H:%M:%S} "
    except (KeyError, TypeError, ValueError):
        return ""


def _details(event: Mapping[str, Any]) -> str:
    told = [f"{key} {value}" for key, value in event.items() if key not in _OF_EVERY_EVENT]
    return f" ({', '.join(told)})" if told else ""


def _started(event: Mapping[str, Any]) -> str:
    return f"worker {event.get('worker')} takes work from {event.get('service')}"


def _verdict(event: Mapping[str, Any]) -> str:
    qualifiers = ": ".join(str(event[key]) for key in ("basis", "assurance", "code") if event.get(key))
    verdict = f"{event.get('verdict')} ({qualifiers})" if qualifiers else f"{event.get('verdict')}"
    text = f"run {event.get('checkpoint')}: {verdict}"
    bytes_read, seconds = event.get("bytes_read"), event.get("seconds")
    if isinstance(bytes_read, int) and isinstance(seconds, int | float):
        text += f", {bytes_text(bytes_read)} in {seconds_text(seconds)}"
    return text


_NEWS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    STARTED: _started,
    VERDICT: _verdict,
    ANSWERS_AGAIN: lambda _: ANSWERS_AGAIN,
}
