"""What a person at the terminal of `serve` sees: few lines; all of the logs lie in a file, as JSON."""

import json
import logging
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from ckptguard.cli.log_lines import AT_KEY, lines_of
from ckptguard.cli.plain_text import printable
from ckptguard.clock import Clock
from ckptguard.errors import ConfigError

MAX_LOG_BYTES: Final = 10 << 20
KEPT_LOGS: Final = 4
"""Older files beside the one that is written: `serve.log.1` is the newest of them."""
MAX_LINE_BYTES: Final = 256 << 10
_CHUNK_BYTES: Final = 64 << 10
_LAST_LINES_S: Final = 5.0
_MAX_SHOWN_CHARS: Final = 2000


@contextmanager
def quiet_terminal(file: Path, *, clock: Clock) -> Iterator[None]:
    """Stand between standard error and the terminal while the block runs.

    All that this process and its children write there arrives here: the worker and further API processes
    write JSON, and know of no file. So one process writes the file, and may rotate it. What was no JSON, a
    traceback say, is shown as it is, and is an object with `text` in the file.

    Args:
        file: Of the logs; at most `MAX_LOG_BYTES`, with `KEPT_LOGS` older ones beside it.
        clock: Times what has no time of its own.

    Raises:
        ConfigError: The file cannot be written.
    """
    standard_error = sys.stderr.fileno()
    with ExitStack() as closing:
        terminal = os.dup(standard_error)
        closing.callback(os.close, terminal)
        log = _opened(file, terminal=terminal)
        closing.callback(log.close)
        reading, writing = os.pipe()
        closing.callback(os.close, reading)
        stop_reading, stop_writing = os.pipe()
        closing.callback(os.close, stop_reading)
        reader = _Reader(reading, stop_reading, log, terminal=terminal, clock=clock)
        reader.start()
        os.dup2(writing, standard_error)
        os.close(writing)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, standard_error)
            os.close(stop_writing)
            reader.join(_LAST_LINES_S)


def _opened(file: Path, *, terminal: int) -> "_LogFile":
    try:
        return _LogFile(file, terminal=terminal)
    except OSError as error:
        msg = f"the log {file} cannot be written: {error.strerror}; or give --log json"
        raise ConfigError(msg) from error


class _Reader(threading.Thread):
    """Reads lines until it is told that no more will come, and everything that was written before."""

    def __init__(self, reading: int, stop: int, log: "_LogFile", *, terminal: int, clock: Clock) -> None:
        super().__init__(name="terminal", daemon=True)
        self._reading = reading
        self._no_more = stop
        self._log = log
        self._terminal = terminal
        self._clock = clock

    def run(self) -> None:
        rest = b""
        while chunk := self._next():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)
            if len(rest) > MAX_LINE_BYTES:
                self._take(rest)
                rest = b""
        if rest:
            self._take(rest)

    def _next(self) -> bytes:
        ready, _, _ = select.select([self._reading, self._no_more], [], [])
        return os.read(self._reading, _CHUNK_BYTES) if self._reading in ready else b""

    def _take(self, line: bytes) -> None:
        event = _event_of(line)
        if event is not None:
            self._log.write(line.decode("ascii"))
            shown = "".join(f"{text}\n" for text in lines_of(event))
        else:
            text = line.decode(errors="backslashreplace").rstrip("\r")
            at = self._clock.now().isoformat()
            self._log.write(json.dumps({AT_KEY: at, "event": "text", "text": text}))
            shown = f"{printable(text, max_chars=_MAX_SHOWN_CHARS)}\n"
        write_to_terminal(self._terminal, shown)


def _event_of(line: bytes) -> dict[str, Any] | None:
    """Return what was logged, or None where the line is something else."""
    if not line.startswith(b"{") or not line.isascii():
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "event" in event else None


class _LogFile(RotatingFileHandler):
    """The file; a disk that is full ends nothing, and is told once."""

    def __init__(self, file: Path, *, terminal: int) -> None:
        super().__init__(file, maxBytes=MAX_LOG_BYTES, backupCount=KEPT_LOGS, encoding="ascii")
        self._terminal = terminal
        self._has_told = False

    def write(self, line: str) -> None:
        """Add a line."""
        self.handle(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        """Write no more; what a full disk does not take is lost."""
        with suppress(OSError):
            super().close()

    def handleError(self, _record: logging.LogRecord) -> None:  # noqa: N802 - the standard library's name
        """Tell once; the library would write to standard error, which is read here."""
        if not self._has_told:
            self._has_told = True
            write_to_terminal(self._terminal, f"warning: {self.baseFilename}: {sys.exception()}\n")


def write_to_terminal(terminal: int, text: str) -> None:
    """Write to a terminal that may be gone."""
    with suppress(OSError):
        os.write(terminal, text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
