"""Progress of a validation: a stream of events that the bar, the log and a live view share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

REPORT_EVERY_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a validation stands.

    Args:
        phase: What is being done, for a person.
        bytes_done: Bytes read so far.
        bytes_total: Bytes that will be read if nothing is damaged.
        files_done: Files read to their end.
        files_total: Files to read.
        file: The file whose reading caused this event.
        findings: Faults so far.
    """

    phase: str
    bytes_done: int = 0
    bytes_total: int = 0
    files_done: int = 0
    files_total: int = 0
    file: str | None = None
    findings: int = 0


class StoppedError(Exception):
    """Nobody waits for the result of this reading any more."""


ProgressListener = Callable[[Progress], None]


class ProgressMeter:
    """Adds up what several reading threads report; calls the listener every few MiB."""

    def __init__(
        self,
        listener: ProgressListener | None = None,
        *,
        phase: str = "reading",
        bytes_total: int = 0,
        files_total: int = 0,
    ) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._unreported = 0
        self._is_stopped = False
        self.state = Progress(phase=phase, bytes_total=bytes_total, files_total=files_total)

    def stop(self) -> None:
        """End every reading that reports here at its next read: nobody waits for it any more."""
        self._is_stopped = True

    def add_bytes(self, count: int, *, file: str) -> None:
        """Count bytes just read.

        Raises:
            StoppedError: `stop` was called.
        """
        if self._is_stopped:
            raise StoppedError
        with self._lock:
            self._unreported += count
            if self._unreported < REPORT_EVERY_BYTES:
                return
            self._publish(file=file)

    def finish_file(self, file: str, *, findings: int) -> None:
        """Count a file read to its end."""
        with self._lock:
            self.state = replace(
                self.state, files_done=self.state.files_done + 1, findings=self.state.findings + findings
            )
            self._publish(file=file)

    def _publish(self, *, file: str) -> None:
        self.state = replace(self.state, bytes_done=self.state.bytes_done + self._unreported, file=file)
        self._unreported = 0
        if self._listener is not None:
            self._listener(self.state)
