"""What a worker draws at a terminal: one line that moves, below the lines that stay."""

import io

import pytest

from ckptguard.scan.progress import Progress
from ckptguard.testing.fakes import FakeClock
from ckptguard_workers.showing import Console

ERASE = "\r\x1b[K"


def reading(done: int) -> Progress:
    return Progress(phase="reading", bytes_done=done * 10**9, bytes_total=4 * 10**9, files_total=2)


def test_the_line_that_moves_has_the_rate_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    clock, stream = FakeClock(), io.StringIO()
    console = Console(stream, clock=clock)
    with console.following("demo step 3") as show:
        clock.sleep(2.0)
        show(reading(1))
        console.warning("12:00:00 warning: lease lost")
        clock.sleep(0.01)
        show(reading(2))  # too soon to draw
        clock.sleep(2.0)
        show(reading(3))
    console.info("12:00:04 run demo step 3: VALID (loaded)")
    drawn = [line for line in stream.getvalue().split(ERASE) if line]
    first = "run demo step 3: reading, 1.0 GB of 4.0 GB, 0 of 2 files, 500.0 MB/s, 6.00 s left, 0 findings"
    assert drawn[0] == first
    assert drawn[1] == f"12:00:00 warning: lease lost\n{first}"
    assert drawn[2].startswith("run demo step 3: reading, 3.0 GB of 4.0 GB, 0 of 2 files, 748.1 MB/s")
    assert drawn[3:] == ["12:00:04 run demo step 3: VALID (loaded)\n"]


def test_a_line_that_moves_stays_one_line_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    clock, stream = FakeClock(), io.StringIO()
    with Console(stream, clock=clock).following("long\nname " * 20) as show:
        clock.sleep(1.0)
        show(reading(1))
    drawn = [line for line in stream.getvalue().split(ERASE) if line]
    assert len(drawn) == 1
    assert len(drawn[0]) < 60
    assert drawn[0].isprintable()


def test_a_validation_that_is_over_at_once_draws_nothing() -> None:
    stream = io.StringIO()
    with Console(stream, clock=FakeClock()).following("demo step 3") as show:
        show(reading(4))
    assert stream.getvalue() == ""
