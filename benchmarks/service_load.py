"""How fast resume targets are, how that grows, what a large manifest costs, and what waiting costs.

    python benchmarks/service_load.py                                # all: 10,000 to 1,000,000 checkpoints
    python benchmarks/service_load.py --checkpoints 10000 --seconds 3 --databases sqlite

The service is the real one, in processes of its own: one on SQLite, two on PostgreSQL. The load comes from
this process. `open loop` asks 1,100 times a second, whatever the answers do, and a latency counts from when
its request was due; `closed loop` has 16 requests under way at any time. `with changes`: 20 times a second
some run gets another verdict, so its prepared answers are worth nothing any more.
"""

import argparse
import asyncio
import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvloop
from sqlalchemy import text, update

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.http_load import Address, Load, connect, drive, prepare
from benchmarks.service_data import Filled, fill
from ckptguard_api.database import Database
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.tables import workers
from tests.postgres_server import create_database, drop_database, running_server

SIZES = (10_000, 100_000, 1_000_000)
HEAVY = 100_000
PACED_PER_S = 1_100.0
CHANGES_PER_S = 20
NUM_CONNECTIONS = 16
MANIFEST_FILES = 100_000
WAITING = 100
_CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
SERVE = (
    "import sys, uvicorn; uvicorn.run('ckptguard_api.app:from_environment', factory=True, "
    "fd=int(sys.argv[1]), log_config=None, access_log=False)"
)


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


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    print(
        f"{'database':<11}{'checkpoints':>12}{'load':>28}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'cpu us':>9}"
        "  fails"
    )
    with tempfile.TemporaryDirectory(prefix="ckg-load-") as folder:
        for kind in arguments.databases:
            with running_server() if kind == "postgresql" else nullcontext() as server:
                for number in arguments.checkpoints:
                    with _filled(kind, number, folder=Path(folder), server=server) as (url, filled):
                        _measure(kind, number, url, filled, seconds=arguments.seconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--checkpoints", type=int, nargs="+", default=list(SIZES), help="multiples of 1,000")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    return parser.parse_args()


@contextmanager
def _filled(kind: str, number: int, *, folder: Path, server: str | None) -> Iterator[tuple[str, Filled]]:
    name = f"load{number}"
    url = f"sqlite:///{folder / name}.sqlite" if server is None else create_database(server, name)
    database = Database(url)
    filled = fill(database, number, num_heavy=min(HEAVY, number))
    database.close()
    yield url, filled
    if server is None:
        shutil.rmtree(folder / name, ignore_errors=True)
    else:
        drop_database(server, name)
    assert kind


def _measure(kind: str, number: int, url: str, filled: Filled, *, seconds: float) -> None:
    with _running(url, filled, num_processes=1 if kind == "sqlite" else 2) as service:
        requests = [prepare(f"/v1/runs/{name}/resume-target", filled.token) for name in filled.run_names]
        uvloop.run(_first_of_each(service, requests))
        for label, per_s, has_changes in (
            ("closed loop", None, False),
            ("open loop", PACED_PER_S, False),
            ("open loop, with changes", PACED_PER_S, True),
        ):
            load, cpu_us = _load(service, requests, seconds=seconds, per_s=per_s, has_changes=has_changes)
            _print_row(kind, number, label, load, cpu_us=cpu_us)
        uvloop.run(_wait(service))
        _register(service)


async def _first_of_each(service: Service, requests: Sequence[bytes]) -> None:
    for address in service.addresses:
        connection = await connect(address)
        for request in requests:
            assert await connection.ask(request) == httpx.codes.OK
        connection.close()


def _load(
    service: Service, requests: Sequence[bytes], *, seconds: float, per_s: float | None, has_changes: bool
) -> tuple[Load, float]:
    before = service.cpu_s()
    num_connections = NUM_CONNECTIONS if per_s is None else 4 * NUM_CONNECTIONS
    with _changes(service.database_url) if has_changes else nullcontext():
        load = uvloop.run(
            drive(
                service.addresses,
                requests,
                seconds=seconds,
                num_connections=num_connections,
                per_s=per_s,
                seed=1,
            )
        )
    return load, 1e6 * (service.cpu_s() - before) / len(load.latencies_s)


def _print_row(kind: str, number: int, label: str, load: Load, *, cpu_us: float) -> None:
    fails = {status: count for status, count in load.statuses.items() if status != httpx.codes.OK}
    print(
        f"{kind:<11}{number:>12,}{label:>28}{load.per_s:>9,.0f}{load.percentile_ms(50):>9.1f}"
        f"{load.percentile_ms(99):>9.1f}{cpu_us:>9.0f}  {fails or 'none'}",
        flush=True,
    )


@contextmanager
def _changes(database_url: str) -> Iterator[None]:
    """Change runs from another process's point of view, until the end."""
    is_over = threading.Event()

    def change() -> None:
        database = Database(database_url)
        number = 0
        while not is_over.wait(1 / CHANGES_PER_S):
            number += 1
            with database.write() as tx:
                touch_run(tx, number % 1000 + 1)
        database.close()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _running(database_url: str, filled: Filled, *, num_processes: int) -> Iterator[Service]:
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
                process.wait(timeout=30)


def _start(listening: socket.socket, environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    descriptor = listening.fileno()
    with (folder / f"log-{descriptor}").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", SERVE, str(descriptor)],
            env=environment,
            pass_fds=[descriptor],
            stderr=log,
            stdout=log,
        )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


async def _wait(service: Service) -> None:
    """Let 100 launchers wait, and count the connections to the database."""
    _hear_worker(service.database_url)
    request = prepare("/v1/runs/run-8/resume-target?wait_s=5", service.filled.token)
    before = _num_connections(service.database_url)
    launchers = [await connect(service.addresses[n % len(service.addresses)]) for n in range(WAITING)]
    began = time.perf_counter()
    asking = [asyncio.ensure_future(one.ask(request)) for one in launchers]
    await asyncio.sleep(2.5)
    during, num_waiting = _num_connections(service.database_url), sum(not one.done() for one in asking)
    await asyncio.gather(*asking)
    for one in launchers:
        one.close()
    held = (
        "not counted on SQLite"
        if during is None
        else f"{before} connections before, {during} while they wait"
    )
    print(
        f"  {num_waiting} launchers waiting: {held}; all answered {time.perf_counter() - began:.1f} s",
        flush=True,
    )


def _hear_worker(database_url: str) -> None:
    database = Database(database_url)
    with database.write() as tx:
        tx.execute(update(workers).values(seen_at=tx.now))
    database.close()


def _num_connections(database_url: str) -> int | None:
    database = Database(database_url)
    if not database.is_postgresql:
        database.close()
        return None
    with database.read() as tx:
        count: int = tx.execute(text(_CONNECTIONS)).scalar_one()
    database.close()
    return count


def _register(service: Service) -> None:
    """Register a manifest of 100,000 files."""
    body = gzip.compress(json.dumps(_registration()).encode(), compresslevel=1)
    address, pid = service.addresses[0], service.pids[0]
    before = _peak_mib(pid)
    began = time.perf_counter()
    answer = httpx.post(
        f"http://{address.host}:{address.port}/v1/runs/large/checkpoints",
        content=body,
        headers={
            "Authorization": f"Bearer {service.filled.token}",
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
        },
        timeout=60,
    )
    seconds = time.perf_counter() - began
    print(
        f"  manifest of {MANIFEST_FILES:,} files: {answer.status_code} in {seconds:.2f} s, "
        f"peak of the process {_peak_mib(pid):.0f} MiB, {before:.0f} before",
        flush=True,
    )


def _registration() -> dict[str, object]:
    files = [
        {
            "path": f"__{number}_0.distcp",
            "role": "shard",
            "length_bytes": 10_000_000 + number,
            "checksum": "xxh3-128:" + hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest(),
            "checksum_source": "memory",
        }
        for number in range(MANIFEST_FILES)
    ]
    manifest = {
        "manifest_version": 1,
        "run": "large",
        "step": 100,
        "save_id": "3f0c8f3e-6c0f-4b0e-9d53-6f6c2f1c2a77",
        "created_at": "2026-11-29T20:33:00Z",
        "origin": "save",
        "format": "dcp",
        "writer": {"ckptguard": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
        "world_size": MANIFEST_FILES,
        "files": files,
    }
    return {"location": {"store": "demo", "path": "large/step-100"}, "step": 100, "manifest": manifest}


if __name__ == "__main__":
    main()
