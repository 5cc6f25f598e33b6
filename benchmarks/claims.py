"""What a claim and a verdict cost with a long queue: `python benchmarks/claims.py`."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sqlalchemy import insert, select, text

PROJECT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from ckptguard.model.report import report_to_json  # noqa: E402 - after the path is set
from ckptguard_api.database import Database  # noqa: E402
from ckptguard_api.domain.actor import SERVICE  # noqa: E402
from ckptguard_api.leasing.lease import Lease  # noqa: E402, TC001 - after the path is set
from ckptguard_api.leasing.verdict import give_verdict  # noqa: E402
from ckptguard_api.tables import checkpoints, runs, validations  # noqa: E402
from tests.databases import fresh_database  # noqa: E402
from tests.leased_service import LeasedService, checkpoint_values, invalid, key_of, run_values  # noqa: E402
from tests.postgres_server import running_server  # noqa: E402

_PROJECTS: Final = 4
_TIMES: Final = 100


def main() -> None:
    """Measure both databases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--per-run", type=int, default=100)
    options = parser.parse_args()
    print("| database | what | median, ms | 90 %, ms |\n| --- | --- | ---: | ---: |")
    for kind in ("sqlite", "postgresql"):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ckg-claims-")))
            server = stack.enter_context(running_server()) if kind == "postgresql" else None
            database = stack.enter_context(fresh_database(kind, folder=folder, postgres=server))
            service = LeasedService(database=database)
            _fill(service, num_runs=options.runs, per_run=options.per_run)
            _measure(kind, service)


def _measure(kind: str, service: LeasedService) -> None:
    leased: list[Lease] = []

    def judge() -> None:
        report = report_to_json(invalid())
        give_verdict(service.services, key_of(leased.pop()), report=report, actor=SERVICE)

    _tell(kind, "claim, a newest one", lambda: leased.append(service.leased()))
    _tell(kind, "verdict", judge)
    _all_of_tier(service.database, 2)
    _tell(kind, "claim, older ones only", lambda: leased.append(service.leased()))
    _tell(kind, "claim, nothing in its stores", lambda: service.claim(stores=("elsewhere",)))


def _tell(kind: str, what: str, act: Callable[[], object]) -> None:
    times = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        act()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    print(f"| {kind} | {what} | {times[_TIMES // 2]:.1f} | {times[_TIMES * 9 // 10]:.1f} |", flush=True)


def _fill(service: LeasedService, *, num_runs: int, per_run: int) -> None:
    projects = [service.add_project() for _ in range(_PROJECTS)]
    stores = {project_id: service.add_store(project_id) for project_id in projects}
    with service.database.write() as tx:
        rows = [run_values(projects[number % _PROJECTS], tx.now) for number in range(num_runs)]
        tx.execute(insert(runs), rows)
        for run in tx.execute(select(runs)).all():
            rows = [
                checkpoint_values(run, stores[run.project_id], step) | {"validation_state": "queued"}
                for step in range(per_run)
            ]
            tx.execute(insert(checkpoints), rows)
        tx.execute(text(_QUEUE_ALL), {"newest": per_run - 1})
    _analyze(service.database)


def _all_of_tier(database: Database, tier: int) -> None:
    with database.write() as tx:
        tx.execute(validations.update().where(validations.c.tier == 1).values(tier=tier))
    _analyze(database)


def _analyze(database: Database) -> None:
    with database.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE"))


_QUEUE_ALL: Final = """
INSERT INTO validations (project_id, run_id, checkpoint_id, store_id, branch, step, reason, depth,
    requested_by, requested_at, state, tier, attempts, counted_attempts)
SELECT project_id, run_id, id, store_id, branch, step, 'registered', 'load',
    'benchmark', created_at, 'queued', CASE WHEN step = :newest THEN 1 ELSE 2 END, 0, 0 FROM checkpoints"""


if __name__ == "__main__":
    main()
