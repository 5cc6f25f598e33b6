"""Scheduled work: claimed by one, done once, whatever stops; events on transitions and only then."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Row, select, update

from ckptguard.errors import ServiceUnavailableError
from ckptguard.model.service import ValidationReason
from ckptguard.model.verdict import Assurance, Verdict
from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database, Transaction
from ckptguard_api.leasing.repeating import Repeating
from ckptguard_api.leasing.schedule import (
    HOLD_S,
    Round,
    Task,
    claim_round,
    do_round,
    due_tasks,
    prepare,
)
from ckptguard_api.services import Services
from ckptguard_api.settings import Settings
from ckptguard_api.tables import checkpoints, events, runs, schedule, stores, validations, workers
from ckptguard_api.use_cases.scheduled import ScheduleRunner, tasks_of
from ckptguard_api.use_cases.scrub import OPEN_SCRUBS, queue_scrubs
from ckptguard_api.use_cases.watch import watch_runs, watch_workers
from tests.databases import fresh_database
from tests.service_rows import add_checkpoint, add_project, add_run, add_store, add_worker

DEADLINE_S = 60.0


@pytest.fixture
def clock() -> FakeClock:
    """Return a clock that tests move."""
    return FakeClock(datetime(2026, 11, 29, 12, tzinfo=UTC))


@pytest.fixture(params=["sqlite", "postgresql"])
def timed(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    """Return a database of each kind that lives by the test's clock."""
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    with fresh_database(request.param, folder=tmp_path, postgres=server, clock=clock) as database:
        yield database


def kinds_told(database: Database) -> list[str]:
    """Return the kinds of all events, oldest first."""
    with database.read() as tx:
        return list(tx.execute(select(events.c.kind).order_by(events.c.id)).scalars())


def run_through(database: Database, work: Callable[[Transaction, int], Round]) -> int:
    """Do rounds until there is no more, each in its transaction; return how many."""
    cursor, rounds = 0, 0
    while rounds < 500:
        rounds += 1
        with database.write() as tx:
            done = work(tx, cursor)
        cursor = done.cursor
        if not done.is_more:
            return rounds
    pytest.fail("the rounds do not end")


def counting_task(name: str = "count") -> Task:
    """Return a task whose cursor counts its rounds."""
    return Task(name=name, every_s=10.0, work=lambda _tx, cursor: Round(cursor=cursor + 1))


# -- claims ------------------------------------------------------------------------------------------


def test_a_task_is_claimed_by_one(timed: Database) -> None:
    task = counting_task()
    prepare(timed, [task])
    assert claim_round(timed, task) is not None
    assert claim_round(timed, task) is None
    assert due_tasks(timed, [task]) == []


def test_a_finished_round_comes_again_after_its_period(timed: Database, clock: FakeClock) -> None:
    task = counting_task()
    prepare(timed, [task])
    for expected in (1, 2, 3):
        held = claim_round(timed, task)
        assert held is not None
        assert do_round(timed, task, held) == Round(cursor=expected)
        assert claim_round(timed, task) is None
        clock.advance(task.every_s)
        assert due_tasks(timed, [task]) == [task]


def test_a_claim_of_a_dead_process_ends_by_itself(timed: Database, clock: FakeClock) -> None:
    task = counting_task()
    prepare(timed, [task])
    dead = claim_round(timed, task)
    assert dead is not None
    clock.advance(HOLD_S)
    held = claim_round(timed, task)
    assert held is not None
    assert held.fence > dead.fence
    assert do_round(timed, task, dead) is None, "it woke up late, and must do nothing"
    assert do_round(timed, task, held) == Round(cursor=1)
    assert do_round(timed, task, held) is None, "a finished claim is no claim"


def test_a_round_that_fails_leaves_nothing_and_is_done_later(timed: Database, clock: FakeClock) -> None:
    project: list[int] = []

    def broken(tx: Transaction, _cursor: int) -> Round:
        project.append(add_project(tx))
        msg = "after it wrote something"
        raise ServiceUnavailableError(msg)

    task = Task(name="broken", every_s=10.0, work=broken)
    prepare(timed, [task])
    held = claim_round(timed, task)
    assert held is not None
    with pytest.raises(ServiceUnavailableError):
        do_round(timed, task, held)
    with timed.read() as tx:
        row = tx.execute(select(schedule)).one()
    assert (row.cursor, row.claimed_until is None) == (0, False)
    clock.advance(HOLD_S)
    assert claim_round(timed, task) is not None


def test_a_clock_that_was_put_back_stops_no_work(timed: Database, clock: FakeClock) -> None:
    task = counting_task()
    prepare(timed, [task])
    far = clock.now() + timedelta(days=30)
    with timed.write() as tx:
        tx.execute(update(schedule).values(next_at=far, claimed_until=far))
    assert claim_round(timed, task) is not None


def test_preparing_twice_changes_nothing(timed: Database) -> None:
    prepare(timed, [counting_task("a")])
    prepare(timed, [counting_task("a"), counting_task("b")])
    with timed.read() as tx:
        assert list(tx.execute(select(schedule.c.name).order_by(schedule.c.name)).scalars()) == ["a", "b"]


# -- workers and runs --------------------------------------------------------------------------------


def test_a_silence_is_told_once_and_so_is_the_return(timed: Database, clock: FakeClock) -> None:
    def watch(tx: Transaction, _cursor: int) -> Round:
        return watch_workers(tx, heard_within_s=60.0)

    with timed.write() as tx:
        add_worker(tx, "canary-1")
        add_worker(tx, "leaving", is_draining=True)
    run_through(timed, watch)
    assert kinds_told(timed) == []
    clock.advance(61.0)
    run_through(timed, watch)
    run_through(timed, watch)
    assert kinds_told(timed) == ["worker.silent"]
    with timed.write() as tx:
        tx.execute(update(workers).values(seen_at=tx.now))
    run_through(timed, watch)
    run_through(timed, watch)
    assert kinds_told(timed) == ["worker.silent", "worker.returned"]
    clock.advance(61.0)
    run_through(timed, watch)
    assert kinds_told(timed) == ["worker.silent", "worker.returned", "worker.silent"]


def test_an_unprotected_run_is_told_once_each_time(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        store_id = add_store(tx, project_id)
        run_id = add_run(tx, project_id, unprotected_after_s=3600.0)
        add_run(tx, project_id, "never", unprotected_after_s=None)
        add_checkpoint(tx, run_id, store_id, step=1, verdict=Verdict.VALID)
    run_through(timed, watch_runs)
    clock.advance(3601.0)
    with timed.write() as tx:
        add_checkpoint(tx, run_id, store_id, step=2, verdict=Verdict.INVALID)
        add_checkpoint(tx, run_id, store_id, step=3)
    run_through(timed, watch_runs)
    run_through(timed, watch_runs)
    assert kinds_told(timed) == ["run.unprotected"]
    with timed.write() as tx:
        add_checkpoint(tx, run_id, store_id, step=4, verdict=Verdict.VALID)
    run_through(timed, watch_runs)
    clock.advance(3601.0)
    run_through(timed, watch_runs)
    assert kinds_told(timed) == ["run.unprotected"] * 2
    with timed.read() as tx:
        data = tx.execute(select(events.c.data).order_by(events.c.id.desc()).limit(1)).scalar_one()
    assert (data["unprotected_s"], data["has_valid"]) == (3601.0, True)


def test_a_run_without_any_valid_counts_from_its_beginning(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        add_run(tx, add_project(tx), unprotected_after_s=60.0)
    clock.advance(59.0)
    run_through(timed, watch_runs)
    assert kinds_told(timed) == []
    clock.advance(2.0)
    run_through(timed, watch_runs)
    assert kinds_told(timed) == ["run.unprotected"]


def test_every_one_of_many_runs_is_looked_at(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        for number in range(250):
            late = 60.0 if number % 50 == 0 else 1e6
            add_run(tx, project_id, f"run-{number}", unprotected_after_s=late)
    clock.advance(61.0)
    run_through(timed, watch_runs)
    assert kinds_told(timed) == ["run.unprotected"] * 5
    with timed.read() as tx:
        told = tx.execute(select(runs.c.name).where(runs.c.unprotected_told_at.is_not(None))).scalars()
        assert sorted(told) == ["run-0", "run-100", "run-150", "run-200", "run-50"]


# -- scrubs ------------------------------------------------------------------------------------------


def queued(database: Database) -> list[Row[tuple[int, str, str]]]:
    """Return the scrubs that are open."""
    query = select(validations.c.checkpoint_id, validations.c.depth, validations.c.state).where(
        validations.c.reason == ValidationReason.SCRUB, validations.c.state == "queued"
    )
    with database.read() as tx:
        return list(tx.execute(query.order_by(validations.c.checkpoint_id)).all())


def test_old_verdicts_are_proven_again_as_deep_as_before(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        store_id, other = add_store(tx, project_id), add_store(tx, project_id, "other", "file:///data/other")
        tx.execute(update(stores).where(stores.c.id == store_id).values(scrub_every_s=3600.0))
        one, two = add_run(tx, project_id, "one"), add_run(tx, project_id, "two")
        old = [
            add_checkpoint(tx, one, store_id, step=1, verdict=Verdict.VALID),
            add_checkpoint(tx, two, store_id, step=1, verdict=Verdict.VALID, assurance=Assurance.CONTENT),
        ]
        add_checkpoint(tx, one, store_id, step=2, verdict=Verdict.INVALID)
        add_checkpoint(tx, one, other, step=3, verdict=Verdict.VALID)
    run_through(timed, queue_scrubs)
    assert queued(timed) == []
    clock.advance(3601.0)
    with timed.write() as tx:
        add_checkpoint(tx, one, store_id, step=4, verdict=Verdict.VALID)
    run_through(timed, queue_scrubs)
    assert [(row.checkpoint_id, row.depth) for row in queued(timed)] == [
        (old[0], "load"),
        (old[1], "content"),
    ]
    run_through(timed, queue_scrubs)
    assert len(queued(timed)) == 2


def test_a_scrub_that_found_nothing_out_waits_for_its_time(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        store_id = add_store(tx, project_id)
        tx.execute(update(stores).values(scrub_every_s=3600.0))
        add_checkpoint(tx, add_run(tx, project_id), store_id, step=1, verdict=Verdict.VALID)
    clock.advance(3601.0)
    run_through(timed, queue_scrubs)
    with timed.write() as tx:  # UNKNOWN for reasons of infrastructure: the old verdict stays
        tx.execute(update(validations).values(state="finished"))
        tx.execute(update(checkpoints).values(validation_state=None))
    run_through(timed, queue_scrubs)
    assert queued(timed) == []
    clock.advance(3601.0)
    run_through(timed, queue_scrubs)
    assert len(queued(timed)) == 1


def test_scrubs_come_in_no_flood(timed: Database, clock: FakeClock) -> None:
    with timed.write() as tx:
        project_id = add_project(tx)
        store_id = add_store(tx, project_id)
        tx.execute(update(stores).values(scrub_every_s=3600.0))
        for number in range(3):
            run_id = add_run(tx, project_id, f"run-{number}")
            for step in range(25):
                add_checkpoint(tx, run_id, store_id, step=step, verdict=Verdict.VALID)
    clock.advance(3601.0)
    run_through(timed, queue_scrubs)
    assert len(queued(timed)) == OPEN_SCRUBS


# -- the runner --------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_a_runner_does_what_is_due_and_stops_soon(database: Database) -> None:
    with database.write() as tx:
        add_worker(tx, seen_at=tx.now - timedelta(hours=1))
    runner = ScheduleRunner(Services(database=database, settings=Settings()), tick_s=0.05)
    runner.start()
    try:
        wait_for(lambda: kinds_told(database) == ["worker.silent"])
    finally:
        wait_for(runner.stop)


def test_a_runner_that_never_started_stops(database: Database) -> None:
    assert ScheduleRunner(Services(database=database, settings=Settings())).stop()


def test_every_task_has_a_name_of_its_own_and_the_rows_for_it(database: Database) -> None:
    tasks = tasks_of(Settings())
    assert len({task.name for task in tasks}) == len(tasks)
    runner = ScheduleRunner(Services(database=database, settings=Settings()))
    runner.do_due()
    with database.read() as tx:
        rows = tx.execute(select(schedule)).all()
    assert {row.name for row in rows} == {task.name for task in tasks}
    assert all(row.claim > 0 and row.claimed_until is None for row in rows), "each had its first round"


def test_one_task_that_fails_keeps_no_other_from_its_turn(database: Database) -> None:
    with database.write() as tx:
        add_worker(tx, seen_at=tx.now - timedelta(hours=1))
    runner = ScheduleRunner(Services(database=database, settings=Settings()))

    def broken(_tx: Transaction, _cursor: int) -> Round:
        msg = "a fault of the task"
        raise RuntimeError(msg)

    runner._tasks = [Task(name="broken", every_s=1.0, work=broken), *tasks_of(Settings())]
    runner.do_due()
    assert kinds_told(database) == ["worker.silent"]


def test_a_database_that_gives_no_answer_is_survived() -> None:
    answers: list[bool] = []
    is_down = threading.Event()
    is_down.set()

    def work() -> bool:
        if is_down.is_set():
            answers.append(False)
            msg = "the database gave no answer"
            raise ServiceUnavailableError(msg)
        answers.append(True)
        return False

    thread = Repeating("test", work, pause_s=0.01)
    thread.start()
    try:
        wait_for(lambda: len(answers) >= 3)
        is_down.clear()
        wait_for(lambda: answers[-1])
    finally:
        thread.tell_to_stop()
        assert thread.wait(within_s=DEADLINE_S)
