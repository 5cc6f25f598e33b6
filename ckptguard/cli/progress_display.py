"""Live progress on standard error: a bar on a terminal, a line every ten seconds on a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from ckptguard.cli.lines import is_live
from ckptguard.cli.plain_text import bytes_text, count_text, printable, rate_text, seconds_text
from ckptguard.clock import Clock, SystemClock
from ckptguard.scan.progress import Progress, ProgressListener

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

LINE_EVERY_S: Final = 10.0
_NAME_CHARS: Final = 24


@contextmanager
def showing_progress(
    stream: TextIO | None = None, *, clock: Clock | None = None
) -> Iterator[ProgressListener]:
    """Yield the listener that shows progress while the block runs; leaves nothing behind on a terminal."""
    target = stream or sys.stderr
    if is_live(target):
        with _bar(target) as listener:
            yield listener
        return
    yield LineProgress(target, clock=clock or SystemClock())


class LineProgress:
    """Writes at most one line every `LINE_EVERY_S`; a check that ends sooner writes none.

    Called by one thread at a time, as `ProgressMeter` does.
    """

    def __init__(self, stream: TextIO, *, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._started_s = self._written_s = clock.monotonic_s()

    def __call__(self, progress: Progress) -> None:
        """Write a line if it is time."""
        now_s = self._clock.monotonic_s()
        if now_s - self._written_s < LINE_EVERY_S:
            return
        self._written_s = now_s
        self._stream.write(f"{progress_line(progress, elapsed_s=now_s - self._started_s)}\n")
        self._stream.flush()


def progress_line(progress: Progress, *, elapsed_s: float) -> str:
    """Return where a validation stands as one line.

    Args:
        progress: The event.
        elapsed_s: Since the first event, in seconds; rate and remaining time follow from it.
    """
    parts = [
        printable(progress.phase),
        f"{bytes_text(progress.bytes_done)} of {bytes_text(progress.bytes_total)}",
        f"{progress.files_done} of {count_text(progress.files_total, 'files')}",
        rate_text(progress.bytes_done, elapsed_s),
        _remaining(progress, elapsed_s),
        count_text(progress.findings, "findings"),
    ]
    return ", ".join(part for part in parts if part)


def _remaining(progress: Progress, elapsed_s: float) -> str:
    left = progress.bytes_total - progress.bytes_done
    if not progress.bytes_done or left <= 0:
        return ""
    return f"{seconds_text(left * elapsed_s / progress.bytes_done)} left"


@contextmanager
def _bar(stream: TextIO) -> Iterator[ProgressListener]:
    from rich.console import Console  # noqa: PLC0415 - 0.1 s, and only a terminal needs it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichBar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[files]} files  {task.fields[findings]} found", markup=False),
    )
    with RichBar(*columns, console=Console(file=stream), transient=True, expand=False) as bar:
        yield _BarListener(bar)


class _BarListener:
    """Moves one rich bar."""

    def __init__(self, bar: "Bar") -> None:
        self._bar = bar
        self._task: TaskID = bar.add_task("starting", total=None, files="0/0", findings=0)

    def __call__(self, progress: Progress) -> None:
        name = progress.file or progress.phase
        self._bar.update(
            self._task,
            description=printable(name, max_chars=_NAME_CHARS),
            completed=progress.bytes_done,
            total=progress.bytes_total or None,
            files=f"{progress.files_done}/{progress.files_total}",
            findings=progress.findings,
        )
