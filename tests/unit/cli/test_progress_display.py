"""Progress goes to a terminal as a bar, to a pipe as rare lines."""

import io
from datetime import UTC, datetime

import pytest

from ckptguard.cli.progress_display import LineProgress, progress_line, showing_progress
from ckptguard.scan.progress import Progress


class FakeClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now(self) -> datetime:
        """Return a fixed time."""
        return datetime(2026, 11, 29, tzinfo=UTC)

    def monotonic_s(self) -> float:
        """Return where the test moved it."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Move."""
        self.now_s += seconds


HALF = Progress(phase="reading", bytes_done=10**9, bytes_total=2 * 10**9, files_done=1, files_total=4)


def test_a_short_check_writes_no_progress_to_a_pipe() -> None:
    stream, clock = io.StringIO(), FakeClock()
    show = LineProgress(stream, clock=clock)
    for _ in range(100):
        clock.now_s += 0.09
        show(HALF)
    assert stream.getvalue() == ""


def test_a_pipe_gets_a_line_each_ten_seconds() -> None:
    stream, clock = io.StringIO(), FakeClock()
    show = LineProgress(stream, clock=clock)
    for _ in range(60):
        clock.now_s += 0.5
        show(HALF)
    assert stream.getvalue().splitlines() == [
        "reading, 1.0 GB of 2.0 GB, 1 of 4 files, 100.0 MB/s, 10.00 s left, 0 findings",
        "reading, 1.0 GB of 2.0 GB, 1 of 4 files, 50.0 MB/s, 20.00 s left, 0 findings",
        "reading, 1.0 GB of 2.0 GB, 1 of 4 files, 33.3 MB/s, 30.00 s left, 0 findings",
    ]


def test_nothing_read_yet_has_no_rate_and_no_end() -> None:
    line = progress_line(Progress(phase="listing\x1b"), elapsed_s=0.0)
    assert line == r"listing\x1b, 0 B of 0 B, 0 of 0 files, 0 findings"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


def test_a_terminal_gets_a_bar_that_obeys_no_file_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    with showing_progress(stream) as show:
        show(
            Progress(phase="reading", file="[red]\x1b]0;owned\x07", bytes_done=5, bytes_total=10, findings=3)
        )
    assert "\x1b]0;" not in stream.getvalue()
    assert r"[red]\x1b]0;owned\x07" in stream.getvalue()
    assert "3 found" in stream.getvalue()


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with showing_progress(Terminal()) as show:
        assert isinstance(show, LineProgress)
