"""Many runners over one database, which crash between claim and finish while clocks jump: nothing twice."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from ckptguard.errors import CkptGuardError, ServiceUnavailableError
from ckptguard.model.service import EventKind
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.domain.subject import Subject
from ckptguard_api.leasing.schedule import HOLD_S, Round, Task, claim_round, do_round, prepare
from ckptguard_api.repositories.events import record
from ckptguard_api.repositories.schedule import Claim
from ckptguard_api.tables import deliveries, events, webhooks, workers
from ckptguard_api.use_cases.fan_out import fan_out
from ckptguard_api.use_cases.watch import watch_workers
from tests.databases import fresh_database
from tests.service_rows import add_project, add_worker

HEARD_WITHIN_S = 60.0
STEPS = 200


class JumpingClock(FakeClock):
    """A clock that somebody also puts back."""

    jump_s = 0.0

    def now(self) -> datetime:
        """Return the time, wherever it was put."""
        return super().now() + timedelta(seconds=self.jump_s)


def look_at_workers(tx: Transaction, _cursor: int) -> Round:
    """Tell of silent workers."""
    return watch_workers(tx, heard_within_s=HEARD_WITHIN_S)


def number_rounds(tx: Transaction, cursor: int) -> Round:
    """Tell the number of this round: work that would show if it were done twice."""
    record(tx, EventKind.RUN_CHANGED, actor=SERVICE, data={"round": cursor})
    return Round(cursor=cursor + 1, is_more=True)


TASKS = (
    Task(name="numbers", every_s=5.0, work=number_rounds),
    Task(name="workers", every_s=5.0, work=look_at_workers),
    Task(name="webhooks", every_s=1.0, work=fan_out),
)


class Model:
    """The plain truth: how often each worker fell silent, and what a webhook must be told."""

    def __init__(self, database: Database, clock: JumpingClock, chance: random.Random) -> None:
        self.database = database
        self.clock = clock
        self.chance = chance
        self.held = list[tuple[Task, Claim]]()
        with database.write() as tx:
            self.project_id = add_project(tx)
            for number in range(3):
                add_worker(tx, f"canary-{number}")
            values = {"url": "https://example.com/", "secrets": [], "is_enabled": True, "created_by": "test"}
            kinds = [EventKind.WORKER_SILENT.value, EventKind.RUN_UNPROTECTED.value]
            values |= {"project_id": self.project_id, "kinds": kinds, "after_event_id": 0}
            tx.execute(webhooks.insert().values(**values, created_at=tx.now))
        prepare(database, TASKS)

    def moves(self) -> dict[str, Callable[[], None]]:
        """Return everything that may happen, by name."""
        passing_s = self.chance.choice((7.0, HOLD_S, HOLD_S + 1, HEARD_WITHIN_S + 1))
        return {
            "claim": self.claim,
            "finish": self.finish,
            "finish another": self.finish,
            "crash in the middle": self.crash_inside,
            "forget": self.crash_between,
            "claim another": self.claim,
            "time passes": lambda: self.clock.advance(passing_s),
            "clock jumps": self.jump,
            "heartbeat": self.heartbeat,
            "event": self.happen,
        }

    def step(self) -> str:
        """Do one thing that may happen, and return its name."""
        moves = self.moves()
        name = self.chance.choice(sorted(moves))
        moves[name]()
        return name

    def claim(self) -> None:
        """A runner claims and falls asleep before it works."""
        task = self.chance.choice(TASKS)
        held = claim_round(self.database, task)
        if held is not None:
            self.held.append((task, held))

    def finish(self) -> None:
        """A runner that claimed, long ago perhaps, does its round."""
        if self.held:
            do_round(self.database, *self.held.pop(self.chance.randrange(len(self.held))))

    def crash_inside(self) -> None:
        """A runner dies after its work, before the commit."""
        if not self.held:
            return
        task, held = self.held.pop()

        def dies(tx: Transaction, cursor: int) -> Round:
            task.work(tx, cursor)
            msg = "killed"
            raise ServiceUnavailableError(msg)

        with suppress(ServiceUnavailableError):
            lost = do_round(self.database, replace(task, work=dies), held)
            assert lost is None, "it died, and yet it finished"

    def crash_between(self) -> None:
        """A runner dies between claim and work."""
        if self.held:
            self.held.pop()

    def jump(self) -> None:
        """Somebody sets the clock."""
        self.clock.jump_s = self.chance.choice((0.0, 0.0, -3600.0, 3600.0))

    def heartbeat(self) -> None:
        """A worker is heard of."""
        name = f"canary-{self.chance.randrange(3)}"
        with self.database.write() as tx:
            tx.execute(update(workers).where(workers.c.name == name).values(seen_at=tx.now))

    def happen(self) -> None:
        """Something else happens that a webhook asked for."""
        with self.database.write() as tx:
            record(tx, EventKind.RUN_UNPROTECTED, actor=SERVICE, about=Subject(project_id=self.project_id))

    def check(self) -> None:
        """Silences and returns of each worker alternate, and each event has at most one delivery."""
        with self.database.read() as tx:
            told = tx.execute(select(events.c.kind, events.c.data).order_by(events.c.id)).all()
            delivered = Counter(tx.execute(select(deliveries.c.event_id)).scalars())
        assert all(count == 1 for count in delivered.values())
        rounds = [event.data["round"] for event in told if "round" in event.data]
        assert rounds == list(range(len(rounds)))
        for number in range(3):
            own = [event.kind for event in told if event.data.get("worker") == f"canary-{number}"]
            assert own == ["worker.silent", "worker.returned"] * (len(own) // 2) + own[len(own) & ~1 :]
            assert own[len(own) & ~1 :] in ([], ["worker.silent"])

    def settle(self) -> None:
        """Nobody crashes any more: after a while every event was delivered, none twice."""
        for _ in range(4):
            self.clock.advance(HOLD_S)
            for task in TASKS:
                held = claim_round(self.database, task)
                assert held is not None, "a claim that nobody holds any more ends by itself"
                do_round(self.database, task, held)
        with self.database.read() as tx:
            wanted = tx.execute(
                select(events.c.id).where(
                    events.c.kind.in_([EventKind.WORKER_SILENT.value, EventKind.RUN_UNPROTECTED.value])
                )
            )
            told = sorted(tx.execute(select(deliveries.c.event_id)).scalars())
            last = sorted(wanted.scalars())
        assert told in (last, last[:-1], last[:-2], last[:-3]), "all but what the last round itself told"


@pytest.mark.parametrize("seed", range(8))
def test_no_event_is_told_twice_and_none_is_lost(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)  # noqa: S311 - replayed by its seed
    clock = JumpingClock(datetime(2026, 11, 29, 12, tzinfo=UTC))
    with fresh_database("memory", folder=tmp_path, clock=clock) as database:
        model = Model(database, clock, chance)
        history: list[str] = []
        for _ in range(STEPS):
            history.append(model.step())
            try:
                model.check()
            except AssertionError as error:
                pytest.fail(f"seed {seed}, after {len(history)} steps, last {history[-5:]}: {error}")
        model.settle()
        model.check()


def test_runners_in_threads_never_do_a_round_twice(database: Database) -> None:
    """Real time, a real server: each finished round adds one event with a number; none comes twice."""
    task = Task(name="numbers", every_s=1.0, work=number_rounds)
    prepare(database, [task])
    done: list[int] = []
    barrier = threading.Barrier(4)

    def run(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - replayed by its seed
        barrier.wait()
        for _ in range(25):
            try:
                held = claim_round(database, task)
                if held is not None and (chance.random() < 0.9) and do_round(database, task, held):
                    done.append(held.cursor)
                elif held is not None:
                    _let_claims_end(database)  # it died: here nobody waits for a minute
            except CkptGuardError:
                continue

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as tx:
        told = [data["round"] for data in tx.execute(select(events.c.data).order_by(events.c.id)).scalars()]
    assert told == list(range(len(told)))
    assert sorted(done) == told
    assert len(told) > 10


def _let_claims_end(database: Database) -> None:
    from ckptguard_api.tables import schedule  # noqa: PLC0415 - this alone writes it past its repository

    with database.write() as tx:
        tx.execute(update(schedule).values(claimed_until=tx.now))
