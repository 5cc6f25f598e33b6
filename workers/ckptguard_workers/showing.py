"""What a worker says on standard error: JSON for programs; lines, and one that moves, for a person."""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TextIO

import structlog

from ckptguard.cli.lines import is_live, write_text
from ckptguard.cli.log_lines import AT_KEY, LogForm, lines_of
from ckptguard.cli.plain_text import printable
from ckptguard.cli.progress_display import progress_line
from ckptguard.clock import Clock
from ckptguard.scan.progress import Progress, ProgressListener

SHOWN_EVERY_S: Final = 0.2
_ERASE: Final = "\r\x1b[K"

Showing = Callable[[str], AbstractContextManager[ProgressListener]]
"""Given what a person calls a checkpoint: yields what shows how its validation fares."""


@contextmanager
def showing_nobody(_label: str) -> Iterator[ProgressListener]:
    """Show nothing."""
    yield lambda _: None


def log_to_stderr(form: LogForm, *, clock: Clock) -> Showing:
    """Write the logs of this process to standard error.

    As JSON, CR, LF and ESC in a name cannot forge a line; for a person, they are escaped.

    Returns:
        What shows progress there: to a person at a terminal that can draw, else to nobody.
    """
    console = Console(sys.stderr, clock=clock)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key=AT_KEY),
            structlog.processors.format_exc_info,
            _for_a_person if form is LogForm.HUMAN else structlog.processors.JSONRenderer(),
        ],
        logger_factory=lambda *_: console,
    )
    is_drawn = form is LogForm.HUMAN and is_live(sys.stderr)
    return console.following if is_drawn else showing_nobody


def _for_a_person(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    lines = list(lines_of(event))
    if not lines:
        raise structlog.DropEvent
    return "\n".join(lines)


class Console:
    """Lines that stay, and below them one that is drawn anew; from any thread.

    Args:
        stream: Where to.
        clock: Measures rates, and how often to draw.
    """

    def __init__(self, stream: TextIO, *, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._moving = ""

    def msg(self, text: str) -> None:
        """Write a line, or several."""
        with self._lock:
            write_text(f"{_ERASE if self._moving else ''}{text}\n{self._moving}", self._stream)

    debug = info = warning = error = critical = msg
    """structlog calls a logger by the level."""

    @contextmanager
    def following(self, label: str) -> Iterator[ProgressListener]:
        """Yield what draws the progress of one validation; nothing of it is left afterwards."""
        drawn_s = started_s = self._clock.monotonic_s()

        def show(progress: Progress) -> None:
            nonlocal drawn_s
            now_s = self._clock.monotonic_s()
            if now_s - drawn_s >= SHOWN_EVERY_S:
                drawn_s = now_s
                self._draw(f"run {label}: {progress_line(progress, elapsed_s=now_s - started_s)}")

        try:
            yield show
        finally:
            self._draw("")

    def _draw(self, text: str) -> None:
        columns = shutil.get_terminal_size().columns
        with self._lock:
            before, self._moving = self._moving, printable(text)[: columns - 1]
            if before or self._moving:
                write_text(f"{_ERASE}{self._moving}", self._stream)
