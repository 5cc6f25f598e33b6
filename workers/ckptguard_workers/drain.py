"""Two stages of stopping: finish what is held, and, asked again or too late, stop at once."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from ckptguard.clock import Clock

DRAIN_S: Final = 60.0
"""Seconds for the validation at hand, once it is asked to stop."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Drain:
    """Whether to go on.

    Args:
        clock: Measures the time that is left.
        drain_s: Seconds for the validation at hand.
    """

    def __init__(self, clock: Clock, *, drain_s: float = DRAIN_S) -> None:
        self._clock = clock
        self._drain_s = drain_s
        self._ends_at_s: float | None = None
        self._is_idle = False
        # A pipe, not an Event: a signal handler that takes the lock its own thread holds never returns.
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ask(self) -> None:
        """Ask to stop: once, take no more work; twice, at once."""
        now_s = self._clock.monotonic_s()
        self._ends_at_s = now_s + self._drain_s if self._ends_at_s is None else now_s
        with suppress(BlockingIOError):  # full of asks
            os.write(self._wake, b".")

    @property
    def is_asked(self) -> bool:
        """Whether no new work is to be taken."""
        return self._ends_at_s is not None

    @property
    def is_over(self) -> bool:
        """Whether the work at hand is to be given back."""
        return self._ends_at_s is not None and self._clock.monotonic_s() >= self._ends_at_s

    def wait(self, seconds: float) -> None:
        """Wait, unless a stop was asked for since the last wait."""
        if select.select([self._woken], [], [], max(seconds, 0.0))[0]:
            os.read(self._woken, 1 << 10)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Say that nothing is held during a block: a second signal ends the process in it."""
        self._is_idle = True
        try:
            yield
        finally:
            self._is_idle = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Be asked by SIGTERM and SIGINT; of the main thread."""

        def asked(number: int, frame: FrameType | None) -> None:
            del number, frame
            was_asked = self.is_asked
            self.ask()
            if was_asked and self._is_idle:
                raise SystemExit(0)

        before = {number: signal.signal(number, asked) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
