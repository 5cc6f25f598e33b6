"""Workers as real processes, and what `/proc` says of them and of their children."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.integration.lease_service import TOKEN

VALIDATION_CHILD = "ckptguard.operations.validation_child"
CANARY_CHILD = "ckptguard.canary.child"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """A worker that runs, or torchrun with several."""

    process: subprocess.Popen[bytes]
    log: Path

    def children(self, module: str, *, of: int | None = None) -> list[int]:
        """Return the processes of a module whose parent is the worker."""
        parent = self.process.pid if of is None else of
        return [pid for pid in _pids() if _parent(pid) == parent and module in " ".join(arguments(pid))]

    def stop(self) -> int:
        """Ask the worker to stop, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def said(self) -> str:
        """Return what it logged so far."""
        return self.log.read_text()


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def arguments(pid: int) -> list[str]:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with."""
    text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(line.partition("=")[::2] for line in text.split("\0") if line)


def waits_for_its_job(pid: int) -> bool:
    """Say whether a process reads from its standard input just now."""
    fields = Path(f"/proc/{pid}/syscall").read_text().split()
    return fields[1:2] == ["0x0"]


@contextmanager
def running_worker(
    url: str,
    root: Path,
    log: Path,
    *options: str,
    ranks: int = 1,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[WorkerProcess]:
    """Run a worker for the store `demo` at `root`; it is killed at the end if it still runs."""
    if ranks > 1:
        head = ["-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(ranks)]
        head += ["--standalone", "-m", "ckptguard_workers"]
    else:
        head = ["-m", "ckptguard_workers"]
    command = [sys.executable, *head, "--url", url, "--store", f"demo=file://{root}", *options]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CKPTGUARD_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", **environment},
        )
        try:
            yield WorkerProcess(process=process, log=log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
