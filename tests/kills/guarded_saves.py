"""Jobs whose ranks are forked and can be killed, and the process that forks them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.kills.guarded_ranks import WORLD, Job, to_json
from tests.kills.steps import STOPPED
from tests.kills.victims import descendants, is_dead, is_stopped, wait_until

_ENDS_S: Final = 20.0
_PROJECT: Final = Path(__file__).resolve().parents[2]


class Who(StrEnum):
    """Which processes of a rank."""

    ALL = "all"
    TRAINER = "the trainer, not the process that saves for it"
    WRITER = "the process that saves for it"


@dataclass(kw_only=True)
class Ranks:
    """One job that was started."""

    job: Job
    pids: list[int]
    processes: list[list[int]] = field(default_factory=list)

    def trace(self, rank: int = 0) -> list[str]:
        """Return what a rank told so far."""
        path = Path(self.job.trace(rank))
        return path.read_text().splitlines() if path.exists() else []

    @property
    def has_returned(self) -> bool:
        """Say whether the save has returned on every rank."""
        return all("returned" in self.trace(rank) for rank in range(WORLD))

    def wait_until_ready(self) -> float:
        """Return the moment at which all ranks began to save, and learn their processes."""
        wait_until(self._is_ready, what=f"ranks that save ({self.job.scratch})")
        began_s = time.monotonic()
        self.processes = [[child for child, _ in descendants(pid)] for pid in self.pids]
        return began_s

    def _is_ready(self) -> bool:
        return all("ready" in self.trace(rank) for rank in range(WORLD))

    def wait_until_stopped(self, rank: int) -> int:
        """Return the process that stopped itself before its step; it may be one that saves for the rank.

        Raises:
            AssertionError: The job ended, and nothing stopped.
        """

        def is_known() -> bool:
            pid = self._stopping(rank)
            return (pid is not None and is_stopped(pid)) or all(map(is_dead, self.pids))

        wait_until(is_known, what=f"a stop before {self.job.stops_before} ({self.job.scratch})")
        pid = self._stopping(rank)
        assert pid is not None, f"no step {self.job.stops_before} in {self.trace(rank)}"
        return pid

    def _stopping(self, rank: int) -> int | None:
        told = [line for line in self.trace(rank) if line.startswith(f"{STOPPED} ")]
        return int(told[0].removeprefix(f"{STOPPED} ")) if told else None

    def kill(self, rank: int, who: Who = Who.ALL) -> None:
        """SIGKILL."""
        writers = self.processes[rank] if self.processes and who is not Who.TRAINER else []
        for pid in [*writers, *([] if who is Who.WRITER else [self.pids[rank]])]:
            if not is_dead(pid):
                os.kill(pid, signal.SIGKILL)

    def go_on(self, pid: int | None) -> None:
        """Let a process that stopped go on, if it lives."""
        if pid is not None and not is_dead(pid):
            os.kill(pid, signal.SIGCONT)

    def wait(self) -> None:
        """Wait for the end of all, and of what saves for them; what hangs without its peers is killed."""
        everyone = [*self.pids, *(pid for rank in self.processes for pid in rank)]
        deadline = time.monotonic() + _ENDS_S
        while not all(map(is_dead, everyone)):
            if time.monotonic() > deadline:
                for rank in range(WORLD):
                    self.kill(rank)
            time.sleep(0.005)


class Server:
    """The process that forks ranks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, job: Job) -> Ranks:
        """Fork the ranks of a job."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{to_json(job)}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server has died"
        return Ranks(job=job, pids=json.loads(line))

    def save(self, job: Job) -> Ranks:
        """Save undisturbed."""
        ranks = self.start(job)
        ranks.wait()
        logs = [Path(job.scratch, f"log.{rank}").read_text()[-2000:] for rank in range(WORLD)]
        assert ranks.has_returned, f"an undisturbed save failed: {logs}"
        return ranks


@contextmanager
def running_server(*modules: str) -> Iterator[Server]:
    """Run the server until the context ends; it imports these modules before it forks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CKPTGUARD_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kills.guarded_ranks", *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_PROJECT,
        env=kept | {"OMP_NUM_THREADS": "1"},
    )
    try:
        yield Server(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
