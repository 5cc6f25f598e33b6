"""The service under load: its processes, and what they cost in processor time and memory."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.http_load import Address
from benchmarks.service_data import Filled

# As `ckptguard serve` starts it, but on a socket that is there already. Not by uvicorn's `fd`: it takes any
# descriptor for a Unix socket, TCP_NODELAY stays off, and every answer waits 40 ms for an acknowledgement.
_SERVE: Final = """\
import socket, sys, uvicorn
from ckptguard_api.serving.listening import Listener
from ckptguard_api.serving.server import FACTORY, server_config
config = server_config(FACTORY, Listener(host="127.0.0.1", port=0))
uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""
_END_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service.

    Args:
        addresses: Of its processes.
        pids: Of its processes.
        filled: What is in its database.
        database_url: Where that is.
    """

    addresses: tuple[Address, ...]
    pids: tuple[int, ...]
    filled: Filled
    database_url: str

    def cpu_s(self) -> float:
        """Return the seconds of CPU that its processes used so far."""
        return sum(map(_cpu_s, self.pids))

    def url(self, path: str) -> str:
        """Return the address of a path at its first process."""
        return f"http://{self.addresses[0].host}:{self.addresses[0].port}{path}"

    def peak_mib(self) -> float:
        """Return the most memory that its first process ever had."""
        lines = Path(f"/proc/{self.pids[0]}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@contextmanager
def running_service(database_url: str, filled: Filled, *, num_processes: int) -> Iterator[Service]:
    """Start the service on a filled database, and stop it."""
    sockets = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(num_processes)]
    with tempfile.TemporaryDirectory(prefix="ckg-load-data-") as folder:
        environment = os.environ | {"CKPTGUARD_DATABASE_URL": database_url, "CKPTGUARD_DATA_DIR": folder}
        processes = [_start(one, environment, Path(folder)) for one in sockets]
        addresses = tuple(Address(host="127.0.0.1", port=one.getsockname()[1]) for one in sockets)
        for one in sockets:
            one.close()
        try:
            pids = tuple(process.pid for process in processes)
            yield Service(addresses=addresses, pids=pids, filled=filled, database_url=database_url)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=_END_S)


def _start(listening: socket.socket, environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    descriptor = listening.fileno()
    with (folder / f"log-{descriptor}").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(descriptor)],
            env=environment,
            pass_fds=[descriptor],
            stderr=log,
            stdout=log,
        )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
