"""Between standard error and the terminal of `serve`: nothing is lost, nothing grows, nothing is obeyed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ckptguard.errors import ConfigError
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.serving import terminal
from ckptguard_api.serving.terminal import quiet_terminal


@contextmanager
def standard_error(file: Path) -> Iterator[int]:
    """Have `sys.stderr` be a file, in the place of a terminal."""
    before = sys.stderr
    with file.open("w", encoding="utf-8") as stream:
        sys.stderr = stream
        try:
            yield stream.fileno()
        finally:
            sys.stderr = before


def logged(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="ascii").splitlines()]


def test_what_any_process_writes_is_in_the_file_and_what_matters_on_the_terminal(tmp_path: Path) -> None:
    warning = {"event": "the worker died", "level": "warning", "exit_code": -9}
    noise = {"event": "request", "level": "info"}
    with standard_error(tmp_path / "terminal") as stderr:
        with quiet_terminal(tmp_path / "log", clock=FakeClock()):
            os.write(stderr, f"{json.dumps(warning)}\n{json.dumps(noise)}\n".encode())
            subprocess.run([sys.executable, "-c", "import sys; sys.exit('no JSON\x1b[2J')"], stderr=stderr)  # noqa: PLW1510 - it fails
            os.write(stderr, b"no end of a line")
        os.write(stderr, b"as before\n")
    assert (tmp_path / "terminal").read_text().splitlines() == [
        "warning: the worker died (exit_code -9)",
        r"no JSON\x1b[2J",
        "no end of a line",
        "as before",
    ]
    assert logged(tmp_path / "log") == [
        warning,
        noise,
        {"at": "2026-01-01T00:00:00+00:00", "event": "text", "text": "no JSON\x1b[2J"},
        {"at": "2026-01-01T00:00:00+00:00", "event": "text", "text": "no end of a line"},
    ]


@pytest.mark.parametrize(
    "line", ['{"event"', "{}", "[" * 100_000, '{"event": 1, "level": []}', '{"a": "\xe9"}']
)
def test_no_line_ends_the_reading(tmp_path: Path, line: str) -> None:
    with standard_error(tmp_path / "terminal") as stderr, quiet_terminal(tmp_path / "log", clock=FakeClock()):
        os.write(stderr, f"{line}\n".encode()[:60_000])
        os.write(stderr, b'\n{"event": "the last", "level": "error"}\n')
    assert (tmp_path / "terminal").read_text().endswith("error: the last\n")
    assert logged(tmp_path / "log")[-1]["event"] == "the last"


def test_the_logs_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "MAX_LOG_BYTES", 1000)
    with standard_error(tmp_path / "terminal") as stderr, quiet_terminal(tmp_path / "log", clock=FakeClock()):
        for number in range(1000):
            os.write(stderr, f'{{"event": "request", "level": "info", "number": {number}}}\n'.encode())
    files = sorted(tmp_path.glob("log*"))
    assert [file.name for file in files] == ["log", "log.1", "log.2", "log.3", "log.4"]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert logged(tmp_path / "log")[-1]["number"] == 999


def test_a_full_disk_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    with standard_error(tmp_path / "terminal") as stderr, quiet_terminal(tmp_path / "log", clock=FakeClock()):
        for _ in range(3):
            os.write(stderr, b'{"event": "x", "level": "error"}\n')
    lines = (tmp_path / "terminal").read_text().splitlines()
    assert lines.count("error: x") == 3
    assert [line for line in lines if "No space left" in line] == [lines[0]]
    assert len(lines) == 4


def test_a_file_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    with (
        standard_error(tmp_path / "terminal"),
        pytest.raises(ConfigError, match="--log json"),
        quiet_terminal(tmp_path / "nowhere" / "log", clock=FakeClock()),
    ):
        pytest.fail("it started")
