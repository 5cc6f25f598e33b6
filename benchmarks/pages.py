"""How fast the operator's pages are, what they weigh, and when a map of 100,000 files can be used.

    python benchmarks/pages.py                                        # both databases, seeded and a million
    python benchmarks/pages.py --database sqlite --checkpoints 0      # only the seeded one

The service is the real one, in a process of its own that is warm. `p50` and `p95` are of one client, over
HTTP, each page 60 times, the pages interleaved; `cpu` is what the service used for a request, `gzip`
what the page weighs. `first` and `second` view are what a real Chromium asks for and gets, with scripts,
styles and data, with an empty and a warm cache. `--checkpoints 0` is the seeded database of the tests: 1,000
runs, one of 10,000 checkpoints, one checkpoint of 100,000 files; any other number is that many in 1,000 runs,
and 100,000 more in one.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.load_service import running_service
from benchmarks.page_measures import MapTimes, ServerTime, View, map_times, server_times, signed_in, viewed
from benchmarks.service_data import Filled, fill, tidy
from ckptguard.model.service import Scope
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.use_cases.tokens import TokenWish, create_token
from ckptguard_migrations import upgrade
from tests.pages.browsing import running_browser
from tests.pages.every_page import PAGES, ROOT, checkpoint_path, run_path
from tests.pages.seeded import HEAVY, Seeded, seed
from tests.postgres_server import create_database, running_server

SEEDED: Final = 0
ROUNDS: Final = 60
VISITS: Final = 7
MAX_P95_MS: Final = 100.0
MAX_VIEW_BYTES: Final = 300_000
MAX_MAP_MS: Final = 1_000.0
_HEAVY: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A database to measure on.

    Args:
        url: Its address.
        token: Reads in it.
        pages: Paths by name.
        data: Paths of what pages fetch, by name.
        map_path: Of the page with the map of 100,000 files; None: there is none.
    """

    url: str
    token: str
    pages: Mapping[str, str]
    data: Mapping[str, str]
    map_path: str | None = None


def main() -> None:
    """Measure, print, and fail where a budget is broken."""
    arguments = _arguments()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ckg-pages-") as folder:
        for kind in arguments.database:
            with running_server() if kind == "postgresql" else nullcontext() as server:
                for number in arguments.checkpoints:
                    url = _new_database(kind, number, folder=Path(folder), server=server)
                    subject = _seeded(url) if number == SEEDED else _filled(url, number)
                    broken += _measure(kind, number, subject, rounds=arguments.rounds)
    print("\nevery budget holds" if not broken else "\nBROKEN:\n  " + "\n  ".join(broken))
    sys.exit(1 if broken else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--database", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[SEEDED, 1_000_000])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="requests for each page")
    return parser.parse_args()


def _new_database(kind: str, number: int, *, folder: Path, server: str | None) -> str:
    name = f"pages{number}"
    return f"sqlite:///{folder / name}.sqlite" if server is None else create_database(server, f"{kind}{name}")


@contextmanager
def _filling(url: str) -> Iterator[Database]:
    began = time.perf_counter()
    database = Database(url)
    try:
        yield database
    finally:
        database.close()
    print(f"  filled in {time.perf_counter() - began:.0f} s", flush=True)


def _seeded(url: str) -> Subject:
    upgrade(url)
    with _filling(url) as database:
        where = seed(database)
        tidy(database)
        wish = TokenWish(name="benchmark", scopes=frozenset({Scope.ADMIN}))
        token = create_token(Services(database=database, settings=Settings()), wish, by=SERVICE).token.text
    return Subject(
        url=url,
        token=token,
        pages={name: path for of_route in PAGES.values() for name, path in of_route(where).items()},
        data=_data_paths(where),
        map_path=checkpoint_path(where.damaged_large_id),
    )


def _data_paths(where: Seeded) -> dict[str, str]:
    return {
        "timeline.json of heavy": run_path(HEAVY, "timeline.json"),
        "files.json of 100,000": checkpoint_path(where.damaged_large_id, "files.json"),
        "cells.json of 100,000": checkpoint_path(where.damaged_large_id, "cells.json?start=50000"),
    }


def _filled(url: str, number: int) -> Subject:
    with _filling(url) as database:
        token = fill(database, number, num_heavy=_HEAVY).token
    newest = number + _HEAVY
    pages = {
        "runs": f"{ROOT}/runs",
        "run-5": run_path("run-5"),
        f"heavy run of {_HEAVY:,}": run_path("heavy"),
        "its damaged ones": run_path("heavy") + "?verdict=INVALID",
        "damaged checkpoint": checkpoint_path(newest),
        "its findings": checkpoint_path(newest, "findings"),
        "its files": checkpoint_path(newest, "files"),
        "its tensors": checkpoint_path(newest, "tensors"),
        "diff": checkpoint_path(newest, f"diff?with={newest - 1}"),
        "validation": f"{ROOT}/validations/{newest}",
        **{part: f"{ROOT}/{part}" for part in ("workers", "stores", "events")},
    }
    data = {"timeline.json of heavy": run_path("heavy", "timeline.json")}
    return Subject(url=url, token=token, pages=pages, data=data)


def _measure(kind: str, number: int, subject: Subject, *, rounds: int) -> list[str]:
    title = f"{kind}, " + ("seeded" if number == SEEDED else f"{number:,} checkpoints")
    filled = Filled(token=subject.token, run_names=())
    with (
        running_service(subject.url, filled, num_processes=1) as service,
        running_browser() as browser,
        signed_in(service.url("").rstrip("/"), subject.token) as client,
    ):
        paths = [*subject.pages.values(), *subject.data.values()]
        times = server_times(client, paths, rounds=rounds, cpu_s=service.cpu_s)
        views = {name: viewed(browser, client, path) for name, path in subject.pages.items()}
        broken = _print_pages(title, subject, times, views)
        if subject.map_path is not None:
            broken += _print_map(title, map_times(browser, client, subject.map_path, visits=VISITS))
    return broken


def _print_map(title: str, found: MapTimes) -> list[str]:
    print("  file map of 100,000, from the navigation:")
    for what, (median, worst) in (("ready", found.ready_ms), ("name of a cell shown", found.name_ms)):
        print(f"    {what} {median:.0f} ms, worst of {VISITS} {worst:.0f} ms", flush=True)
    median = found.name_ms[0]
    return [f"{title}: the file map takes {median:.0f} ms"] if median > MAX_MAP_MS else []


def _print_pages(
    title: str,
    subject: Subject,
    times: Mapping[str, ServerTime],
    views: Mapping[str, tuple[View, View]],
) -> list[str]:
    print(f"\n{title}")
    print(
        f"{'':<28}{'p50 ms':>8}{'p95 ms':>8}{'cpu ms':>8}{'gzip kB':>9}{'first view':>16}{'second view':>16}"
    )
    broken = []
    for name, path in (*subject.pages.items(), *subject.data.items()):
        cost = times[path]
        numbers = (cost.p50_ms, cost.p95_ms, cost.cpu_ms, cost.gzip_bytes / 1000)
        row = f"{name:<28}" + "".join(f"{number:>8.1f}" for number in numbers)
        if cost.p95_ms > MAX_P95_MS:
            broken.append(f"{title}, {name}: p95 {cost.p95_ms:.0f} ms")
        for view in views.get(name, ()):
            row += f"{view.requests:>5} {view.bytes_received / 1000:>7.1f} kB"
            if view.bytes_received > MAX_VIEW_BYTES:
                broken.append(f"{title}, {name}: {view.bytes_received / 1000:.0f} kB")
        print(row, flush=True)
    return broken


if __name__ == "__main__":
    main()
