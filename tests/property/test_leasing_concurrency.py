"""Workers, training jobs and the schedule at once, on a real PostgreSQL: no doubles, no deadlocks."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Row, func, select, text
from sqlalchemy.sql import Executable

from ckptguard.errors import LeaseLostError
from ckptguard.model.report import report_to_json
from ckptguard.model.service import AttemptEnding
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.leasing.expiry import end_expired
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import Lease
from ckptguard_api.leasing.queue import cancel_open
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.repositories.runs import lock_run
from ckptguard_api.tables import attempts, checkpoints, leases, validations, verdicts
from tests.databases import fresh_database
from tests.leased_service import LeasedService, invalid, key_of, valid

SEEDS: Final = 5
MORE_SEEDS: Final = 20
_WORKERS: Final = 4
_SAVES: Final = 6


class _Bustle:
    """Everybody at once, until the queue is empty."""

    def __init__(self, database: Database, seed: int) -> None:
        self.seed = seed
        self.service = LeasedService(database=database)
        project_id = self.service.add_project()
        self.store_id = self.service.add_store(project_id)
        self.run_ids = [self.service.add_run(project_id) for _ in range(2)]
        self.live: set[int] = set()
        self.guard = threading.Lock()
        self.saved = threading.Event()

    def save(self) -> None:
        """The training jobs: save, and now and then overwrite."""
        chance = random.Random(f"{self.seed} saves")  # noqa: S311 - to be replayed
        for step in range(_SAVES):
            run_id = chance.choice(self.run_ids)
            checkpoint_id = self.service.add_checkpoint(run_id, self.store_id, step=step)
            self.service.queue(checkpoint_id)
            if chance.random() < 0.2:
                self._overwrite(run_id, checkpoint_id)
        self.saved.set()

    def _overwrite(self, run_id: int, checkpoint_id: int) -> None:
        with self.service.database.write() as tx:
            lock_run(tx, run_id)
            tx.execute(
                text("UPDATE checkpoints SET lifecycle = :now, superseded_by = 'rewritten' WHERE id = :id"),
                {"now": "superseded", "id": checkpoint_id},
            )
            cancel_open(tx, checkpoint_id, why="rewritten", actor=SERVICE)

    def expire(self) -> None:
        """The schedule of another process."""
        while not self.saved.is_set():
            with self.service.database.write() as tx:
                end_expired(tx, self.service.settings)

    def work(self, number: int) -> None:
        """A worker: takes, tells, and judges or gives back, until there is nothing left."""
        chance = random.Random(f"{self.seed} worker {number}")  # noqa: S311 - to be replayed
        while True:
            was_saved = self.saved.is_set()
            lease = self.service.claim(f"w{number}")
            if lease is None and was_saved:
                return
            if lease is not None:
                self._hold(lease, chance)

    def _hold(self, lease: Lease, chance: random.Random) -> None:
        with self.guard:
            assert lease.validation.id not in self.live, "two hold the same validation"
            self.live.add(lease.validation.id)
        with suppress(LeaseLostError):  # it was overwritten meanwhile
            self._end(lease, chance)

    def _end(self, lease: Lease, chance: random.Random) -> None:
        services, key = self.service.services, key_of(lease)
        hear(services, key, progress=Progress(bytes_done=1), is_draining=False, actor=SERVICE)
        is_given_back = chance.random() < 0.3
        with self.guard:  # before the service can give it to another
            self.live.discard(lease.validation.id)
            if is_given_back:
                release(services, key, ending=AttemptEnding.DRAINED, reason="", actor=SERVICE)
                return
        report = report_to_json(chance.choice((valid(), invalid())))
        give_verdict(services, key, report=report, actor=SERVICE)
        assert give_verdict(services, key, report=report, actor=SERVICE)

    def rows(self, statement: Executable) -> list[Row[tuple[int]]]:
        """Return what is there now."""
        with self.service.database.read() as tx:
            return list(tx.execute(statement).all())


@pytest.mark.parametrize(
    "seeds", [range(SEEDS), pytest.param(range(SEEDS, MORE_SEEDS), marks=pytest.mark.slow, id="more")]
)
def test_nobody_gets_the_same_validation_and_nobody_waits_for_each_other_for_ever(
    postgres: str, tmp_path: Path, seeds: range
) -> None:
    with fresh_database("postgresql", folder=tmp_path, postgres=postgres) as database:
        for seed in seeds:
            bustle = _Bustle(database, seed)
            with ThreadPoolExecutor(_WORKERS + 2) as pool:
                tasks = [pool.submit(bustle.work, number) for number in range(_WORKERS)]
                tasks += [pool.submit(bustle.save), pool.submit(bustle.expire)]
            for task in tasks:
                task.result()
            _require_order(bustle)


def _require_order(bustle: _Bustle) -> None:
    message = f"seed {bustle.seed}"
    assert bustle.rows(select(leases.c.attempt_id)) == [], message
    open_ones = select(validations.c.id).where(validations.c.state.in_(["queued", "running"]))
    assert bustle.rows(open_ones) == [], message
    still_open = select(checkpoints.c.id).where(checkpoints.c.validation_state.is_not(None))
    assert bustle.rows(still_open) == [], message
    finished = select(func.count()).select_from(validations).where(validations.c.state == "finished")
    given = select(func.count()).select_from(verdicts)
    assert bustle.rows(finished) == bustle.rows(given), message
    twice = select(attempts.c.validation_id).where(attempts.c.ending == "finished")
    doubled = twice.group_by(attempts.c.validation_id).having(func.count() > 1)
    assert bustle.rows(doubled) == [], message
