"""Progress of `adopt` on standard error, once it takes more than a second."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from ckptguard.cli.lines import is_live
from ckptguard.cli.plain_text import seconds_text
from ckptguard.clock import Clock
from ckptguard.operations.adopt.news import Advance

QUIET_S: Final = 1.0
"""What ends sooner says nothing."""
_LINE_EVERY_S: Final = 10.0
_DRAW_EVERY_S: Final = 0.2
_CLEARED: Final = "\r\x1b[K"


@contextmanager
def adopt_progress(*, clock: Clock, stream: TextIO | None = None) -> Iterator[Advance]:
    """Yield what takes progress: one line drawn anew on a terminal, a line every ten seconds on a pipe."""
    shown = _Shown(stream or sys.stderr, clock)
    try:
        yield shown.advance
    finally:
        shown.clear()


def progress_text(done: int, total: int, *, elapsed_s: float) -> str:
    """Return `1,204 of 10,000 checkpoints, 210/s, 42.00 s left`."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    left = f", {seconds_text((total - done) / rate)} left" if rate and done < total else ""
    return f"{done:,} of {total:,} checkpoints, {rate:,.0f}/s{left}"


class _Shown:
    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._is_live = is_live(stream)
        self._started_s: float | None = None
        self._next_s = 0.0
        self._is_drawn = False

    def advance(self, done: int, total: int) -> None:
        """Write a line if it is time. A pass begins with its first."""
        now_s = self._clock.monotonic_s()
        if self._started_s is None or done == 1:
            self._started_s, self._next_s = now_s, now_s + QUIET_S
        if now_s < self._next_s:
            return
        self._next_s = now_s + (_DRAW_EVERY_S if self._is_live else _LINE_EVERY_S)
        text = progress_text(done, total, elapsed_s=now_s - self._started_s)
        self._stream.write(f"{_CLEARED}{text}" if self._is_live else f"{text}\n")
        self._stream.flush()
        self._is_drawn = self._is_live

    def clear(self) -> None:
        """Leave nothing behind on a terminal."""
        if self._is_drawn:
            self._stream.write(_CLEARED)
            self._stream.flush()
