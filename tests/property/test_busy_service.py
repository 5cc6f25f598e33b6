"""Jobs, workers, launchers, operators and the schedule at once, on PostgreSQL: nobody waits for ever."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import func, select

from ckptguard.errors import ConflictError, LeaseLostError
from ckptguard.model.report import report_to_json
from ckptguard.model.service import AttemptEnding, Hold, RestartOutcome
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.restart_report import RestartReport
from ckptguard_api.leasing.capabilities import Capabilities
from ckptguard_api.leasing.claim import claim
from ckptguard_api.leasing.expiry import end_expired
from ckptguard_api.leasing.heartbeat import Progress, hear
from ckptguard_api.leasing.lease import LeaseKey
from ckptguard_api.leasing.release import release
from ckptguard_api.leasing.verdict import give_verdict
from ckptguard_api.repositories.event_feed import events_after
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, events, leases, runs, validations, verdicts
from ckptguard_api.use_cases.announce import mark_incomplete
from ckptguard_api.use_cases.deletions import mark_deleted
from ckptguard_api.use_cases.holds import hold_checkpoint, release_checkpoint
from ckptguard_api.use_cases.restarts import report_restart
from tests.databases import fresh_database
from tests.leased_service import invalid, valid
from tests.registrations import Trainer, evidence, saved

SECONDS: Final = 5.0
LONGEST_S: Final = 60.0
ACTS: Final = 6
THREADS: Final = 8
RUNS: Final = ("r", "s", "t")
PLACES: Final = ("a", "a/b", "a/b/c", "a/c", "d", "d/e", "f")
_SOON: Final = Settings(lease_s=0.05, heartbeat_every_s=0.01)
"""Leases that run out while others are written to."""
_WHOLE: Final = evidence(saved("r", 0))
"""Every save here holds the same bytes."""


class _Somebody:
    """One thread, which does anything that anybody may do."""

    def __init__(self, trainer: Trainer, number: int, seed: int) -> None:
        self.trainer, self.services = trainer, trainer.services
        self.chance = random.Random(f"{seed} {number}")  # noqa: S311 - to be replayed
        self.name = f"w{number}"
        self.num_done = 0

    def act_until(self, is_over: threading.Event) -> None:
        acts = [self.save, self.save, self.expect, self.work, self.work, self.hold, self.restart, self.tidy]
        while not is_over.is_set():
            act = self.chance.choice(acts)
            with suppress(ConflictError, LeaseLostError):
                act()
                self.num_done += 1

    def save(self) -> None:
        step, place = self.chance.randrange(50), self.chance.choice(PLACES)
        save = f"{self.name}-{self.chance.random()}"
        self.trainer.register(step, place, run=self.chance.choice(RUNS), save=save)

    def expect(self) -> None:
        place = self.chance.choice(PLACES)
        self.trainer.announce(
            self.chance.randrange(50), place, run=self.chance.choice(RUNS), keep_alive_s=1.0
        )

    def work(self) -> None:
        capabilities = Capabilities(stores=("demo",))
        lease = claim(self.services, worker=self.name, capabilities=capabilities, actor=SERVICE)
        if lease is None:
            return
        key = LeaseKey(id=lease.id, token=lease.token)
        hear(self.services, key, progress=Progress(bytes_done=1), is_draining=False, actor=SERVICE)
        ending = self.chance.random()
        if ending < 0.2:
            release(self.services, key, ending=AttemptEnding.FAILED, reason="chance", actor=SERVICE)
        elif ending < 0.8:
            report = report_to_json(self.chance.choice((valid(files=_WHOLE), invalid())))
            give_verdict(self.services, key, report=report, actor=SERVICE)

    def hold(self) -> None:
        row = self._some_checkpoint()
        if row is None:
            return
        place = {"project_id": self.trainer.project_id, "checkpoint_id": row}
        kind = self.chance.randrange(3)
        if kind == 0:
            hold_checkpoint(self.services, hold=Hold.QUARANTINED, reason="chance", actor=SERVICE, **place)
        elif kind == 1:
            release_checkpoint(self.services, what=None, reason="chance", actor=SERVICE, **place)
        else:
            mark_deleted(self.services, reason="chance", actor=SERVICE, **place)

    def restart(self) -> None:
        with self.services.database.read() as tx:
            query = select(checkpoints.c.id, runs.c.name).join(runs, runs.c.id == checkpoints.c.run_id)
            rows = tx.execute(query.where(checkpoints.c.lifecycle == "registered")).all()
        if rows:
            row = self.chance.choice(rows)
            attempt = f"{self.name}-{self.chance.random()}"
            report = RestartReport(attempt=attempt, outcome=RestartOutcome.RESUMED, checkpoint_id=row.id)
            report_restart(
                self.services,
                project_id=self.trainer.project_id,
                run_name=row.name,
                report=report,
                actor=SERVICE,
            )

    def tidy(self) -> None:
        with self.services.database.write() as tx:
            end_expired(tx, self.services.settings)
        with self.services.database.write() as tx:
            mark_incomplete(tx, limit=20)

    def _some_checkpoint(self) -> int | None:
        with self.services.database.read() as tx:
            ids = tx.execute(select(checkpoints.c.id)).scalars().all()
        return self.chance.choice(ids) if ids else None


class _Poller:
    """Remembers the last id that it saw, and asks for those above it, like every reader of the audit."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.seen: list[int] = []

    def poll_until(self, is_over: threading.Event) -> None:
        while not is_over.is_set():
            self.look()

    def look(self) -> None:
        with self.database.read() as tx:
            rows = events_after(tx, self.seen[-1] if self.seen else 0, limit=10_000)
        self.seen.extend(row.id for row in rows)


def test_everybody_at_once_meets_no_deadlock_and_no_reader_misses_an_event(
    postgres: str, tmp_path: Path
) -> None:
    seed = time.time_ns() % 1_000_000
    with fresh_database("postgresql", folder=tmp_path, postgres=postgres) as database:
        trainer = Trainer(database=database)
        trainer.services.settings = _SOON
        people = [_Somebody(trainer, number, seed) for number in range(THREADS)]
        poller = _Poller(database)
        is_over = threading.Event()
        with ThreadPoolExecutor(THREADS + 1) as pool:
            tasks = [pool.submit(one.act_until, is_over) for one in people]
            tasks.append(pool.submit(poller.poll_until, is_over))
            began = time.monotonic()
            while _goes_on(time.monotonic() - began, people) and not any(task.done() for task in tasks):
                is_over.wait(0.05)
            is_over.set()
        for task in tasks:
            task.result()
        poller.look()
        _require_laws(database, poller, message=f"seed {seed}")
        assert min(one.num_done for one in people) >= ACTS, f"seed {seed}: somebody could do nothing"


def _goes_on(seconds: float, people: Sequence[_Somebody]) -> bool:
    """Say whether it goes on: for its time, and on a slow machine until everybody had a turn."""
    is_anybody_short = min(one.num_done for one in people) < ACTS
    return seconds < SECONDS or (is_anybody_short and seconds < LONGEST_S)


def _require_laws(database: Database, poller: _Poller, *, message: str) -> None:
    with database.read() as tx:
        told = list(tx.execute(select(events.c.id).order_by(events.c.id)).scalars())
        open_ones = select(validations.c.checkpoint_id).where(validations.c.state.in_(["queued", "running"]))
        is_open = sorted(tx.execute(open_ones).scalars())
        busy = select(checkpoints.c.id).where(checkpoints.c.validation_state.is_not(None))
        is_busy = sorted(tx.execute(busy).scalars())
        running = select(validations.c.id).where(validations.c.state == "running")
        is_running = sorted(tx.execute(running).scalars())
        is_leased = sorted(tx.execute(select(leases.c.validation_id)).scalars())
        finished = select(func.count()).select_from(validations).where(validations.c.state == "finished")
        num_finished = tx.execute(finished).scalar_one()
        num_verdicts = tx.execute(select(func.count()).select_from(verdicts)).scalar_one()
        live = checkpoints.c.lifecycle.in_(["announced", "registered", "incomplete"])
        places = list(tx.execute(select(checkpoints.c.location).where(live)).scalars())
    assert poller.seen == told, f"{message}: a reader missed an event"
    assert is_open == is_busy, message
    assert is_running == is_leased, message
    assert num_finished == num_verdicts, message
    assert len(places) == len(set(places)), f"{message}: two saves stand at one place"
