"""Time, handed in: nothing below the process edge reads a clock of its own."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the product may know about time."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go back; only differences mean something."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Return the performance counter, in seconds."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)
