"""How fast resume targets are, how that grows, what a large manifest costs, and what waiting costs.

    python benchmarks/service_load.py                                # all: 10,000 and 1,000,000 checkpoints
    python benchmarks/service_load.py --checkpoints 10000 --seconds 3 --databases sqlite
    python benchmarks/service_load.py --keep /tmp/filled             # fill once, measure as often as you like

The service is the real one, in processes of its own: one on SQLite, two on PostgreSQL. The load comes from
this process. `open loop` asks 1,100 times a second, whatever the answers do, and a latency counts from when
its request was due; `closed loop` has 16 requests under way at any time. `with changes`: 20 times a second
some run gets another verdict, so its prepared answers are worth nothing any more. `cpu us` is what the
service's processes used for a request, PostgreSQL's own not counted: it varies less with what else runs here.
"""

import argparse
import asyncio
import gzip
import hashlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import uvloop
from sqlalchemy import text, update

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.http_load import Load, connect, drive, prepare
from benchmarks.load_service import Service, running_service
from benchmarks.service_data import Filled, fill
from ckptguard_api.database import Database
from ckptguard_api.repositories.runs import touch_run
from ckptguard_api.tables import workers
from tests.postgres_server import create_database, database_url, running_server

SIZES = (10_000, 1_000_000)
HEAVY = 100_000
PACED_PER_S = 1_100.0
CHANGES_PER_S = 20
NUM_CONNECTIONS = 16
MANIFEST_FILES = 100_000
WAITING = 100
ALONE = 20
_CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_ALONE = {
    "run-1, changed before": ("/v1/runs/run-1/resume-target", 2),
    "heavy, changed before": ("/v1/runs/heavy/resume-target", 1001),
    "50 runs": ("/v1/runs", None),
    "one run": ("/v1/runs/run-1", None),
    "heavy run": ("/v1/runs/heavy", None),
    "50 checkpoints": ("/v1/checkpoints", None),
    "metrics, after 5 s": ("/metrics", None),
}


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(
        f"{'database':<11}{'checkpoints':>12}{'load':>28}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'cpu us':>9}"
        "  fails"
    )
    with ExitStack() as ending:
        temporary = tempfile.TemporaryDirectory(prefix="ckg-load-")
        folder = arguments.keep or Path(ending.enter_context(temporary))
        folder.mkdir(parents=True, exist_ok=True)
        for kind in arguments.databases:
            with running_server(_keep_at(arguments)) if kind == "postgresql" else nullcontext() as server:
                for number in arguments.checkpoints:
                    url, filled = _filled(kind, number, folder=folder, server=server)
                    _measure(kind, number, url, filled, seconds=arguments.seconds)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--checkpoints", type=int, nargs="+", default=list(SIZES), help="multiples of 1,000")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="filled databases stay here")
    return parser.parse_args()


def _keep_at(arguments: argparse.Namespace) -> Path | None:
    return None if arguments.keep is None else arguments.keep / "postgresql"


def _filled(kind: str, number: int, *, folder: Path, server: str | None) -> tuple[str, Filled]:
    """Return a filled database; one that was kept is as good as new, but for what was measured in it."""
    name = f"load{number}"
    told = folder / f"{kind}-{number}.json"
    url = f"sqlite:///{folder / name}.sqlite" if server is None else database_url(server, name)
    if told.exists():
        return url, Filled(**json.loads(told.read_text()))
    if server is not None:
        create_database(server, name)
    began = time.perf_counter()
    database = Database(url)
    filled = fill(database, number, num_heavy=min(HEAVY, number))
    database.close()
    print(f"  filled in {time.perf_counter() - began:.0f} s", flush=True)
    told.write_text(json.dumps({"token": filled.token, "run_names": filled.run_names}))
    return url, filled


def _measure(kind: str, number: int, url: str, filled: Filled, *, seconds: float) -> None:
    with running_service(url, filled, num_processes=1 if kind == "sqlite" else 2) as service:
        requests = [prepare(f"/v1/runs/{name}/resume-target", filled.token) for name in filled.run_names]
        uvloop.run(_first_of_each(service, requests))
        for label, per_s, has_changes in (
            ("closed loop", None, False),
            ("open loop", PACED_PER_S, False),
            ("open loop, with changes", PACED_PER_S, True),
        ):
            load, cpu_us = _load(service, requests, seconds=seconds, per_s=per_s, has_changes=has_changes)
            _print_row(kind, number, label, load, cpu_us=cpu_us)
        _ask_alone(service)
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
def _changes(url: str) -> Iterator[None]:
    """Change runs from another process's point of view, until the end."""
    is_over = threading.Event()

    def change() -> None:
        database = Database(url)
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


def _ask_alone(service: Service) -> None:
    """Ask one thing after the other; run ids are those of `service_data`."""
    with httpx.Client(headers={"Authorization": f"Bearer {service.filled.token}"}, timeout=60) as client:
        for label, (path, changed_run) in _ALONE.items():
            if changed_run is not None and changed_run > len(service.filled.run_names):
                continue
            num_times = 2 if path == "/metrics" else ALONE
            pause_s = 5.1 if path == "/metrics" else 0.0
            measured = [
                _alone(service, partial(client.get, service.url(path)), changed_run, pause_s=pause_s)
                for _ in range(num_times)
            ]
            seconds, cpu_s = (statistics.median(one) for one in zip(*measured, strict=True))
            print(f"{label:>51}{'':>9}{1e3 * seconds:>9.1f}{'':>9}{1e6 * cpu_s:>9.0f}", flush=True)


def _alone(
    service: Service, ask: Callable[[], httpx.Response], changed_run: int | None, *, pause_s: float
) -> tuple[float, float]:
    if changed_run is not None:
        database = Database(service.database_url)
        with database.write() as tx:
            touch_run(tx, changed_run)
        database.close()
    time.sleep(pause_s)
    began, cpu_before = time.perf_counter(), service.cpu_s()
    ask().raise_for_status()
    return time.perf_counter() - began, service.cpu_s() - cpu_before


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


def _hear_worker(url: str) -> None:
    database = Database(url)
    with database.write() as tx:
        tx.execute(update(workers).values(seen_at=tx.now))
    database.close()


def _num_connections(url: str) -> int | None:
    database = Database(url)
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
    peak_before, cpu_before = service.peak_mib(), service.cpu_s()
    began = time.perf_counter()
    answer = httpx.post(
        service.url("/v1/runs/large/checkpoints"),
        content=body,
        headers={
            "Authorization": f"Bearer {service.filled.token}",
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
        },
        timeout=60,
    )
    seconds, cpu_s = time.perf_counter() - began, service.cpu_s() - cpu_before
    print(
        f"  manifest of {MANIFEST_FILES:,} files: {answer.status_code} in {seconds:.2f} s, {cpu_s:.2f} s of "
        f"CPU, peak of the process {service.peak_mib():.0f} MiB, {peak_before:.0f} before",
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
        "save_id": str(uuid4()),  # a new save each time that it is measured
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
