"""The resume target over random histories: never one that is not VALID as asked, never the newest VALID lost.

python -m pytest -m slow tests/property/test_resume_histories.py   # 100,000 histories
CKPTGUARD_SEED=123 python -m pytest tests/property/test_resume_histories.py   # one of them again
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest
from sqlalchemy import insert, select, update

from ckptguard.testing.fakes import FakeClock
from ckptguard_api.answers.encoding import to_bytes
from ckptguard_api.answers.targets import ResumeTargets, TargetKey
from ckptguard_api.database import Database, Transaction
from ckptguard_api.domain.resume import Asked, Question
from ckptguard_api.domain.resume_choice import choose
from ckptguard_api.repositories.resume import narrow, to_candidate
from ckptguard_api.repositories.runs import find_run, touch_run
from ckptguard_api.revisions.reader import RevisionReader
from ckptguard_api.tables import checkpoints, projects, runs, stores, validations
from ckptguard_api.use_cases.resume_target import answer_resume_target
from tests.property.resume_histories import START, Expected, History, Row

SEED: Final = os.environ.get("CKPTGUARD_SEED")
QUESTIONS: Final = 3
_NOT_STORED: Final = {"open_depth", "open_id", "retry_depth"}


def seeds(count: int) -> Iterator[int]:
    """Yield the seeds to try, or the one to try again."""
    yield from range(count) if SEED is None else (int(SEED),)


def again(seed: int) -> str:
    """Say how to see a failure again."""
    return f"CKPTGUARD_SEED={seed} python -m pytest tests/property/test_resume_histories.py"


def hold_choice(seed: int) -> None:
    """Hold one history against the law."""
    history = History(seed)
    history.go_on(history.chance.randint(0, 40))
    for _ in range(QUESTIONS):
        asked = history.ask()
        expected = Expected(history, asked)
        choice = choose(history.candidates(asked), asked, now=history.now)
        target_id = None if choice.target is None else choice.target.id
        assert target_id is None or expected.is_good(history.rows[target_id]), again(seed)
        assert target_id == expected.target_id, again(seed)
        assert choice.state == expected.state, again(seed)


def test_target_is_never_below_what_is_asked_and_newest_valid_is_never_lost() -> None:
    for seed in seeds(2_000):
        hold_choice(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_target_holds_for_100_000_histories() -> None:
    for seed in seeds(100_000):
        hold_choice(seed)


def test_every_reason_and_state_occurs_in_the_histories() -> None:
    states, reasons = set(), set()
    for seed in range(600):
        history = History(seed)
        history.go_on(30)
        asked = history.ask()
        choice = choose(history.candidates(asked), asked, now=history.now)
        states.add(choice.state.value)
        reasons |= {passed.reason.value for passed in choice.passed_over}
    assert states == {"valid", "valid_below", "pending", "none_valid"}
    assert len(reasons) == 13


def test_sql_chooses_as_the_whole_history_does(database: Database) -> None:
    histories = list(_stored(database, 150 if SEED is None else 1))
    for seed, history in histories:
        for _ in range(QUESTIONS):
            asked = history.ask()
            database.clock = _clock_at(history)
            with database.read() as tx:
                run = find_run(tx, 1, f"run-{seed}")
                assert run is not None
                narrowed = narrow(tx, run, asked, max_passed_over=3)
            seen = [asked.as_seen(to_candidate(row)) for row in narrowed.rows]
            part = choose(seen, asked, now=history.now)
            whole = choose(history.candidates(asked), asked, now=history.now)
            message = f"{again(seed)} {asked}"
            assert (part.state, part.target, part.below) == (whole.state, whole.target, whole.below), message
            assert part.passed_over[:3] == whole.passed_over[:3], message
            assert narrowed.newer_total == len(whole.passed_over), message
            assert narrowed.left_total == _newer(history, asked) - len(whole.passed_over), message


def _newer(history: History, asked: Asked) -> int:
    newest = choose(history.candidates(asked), replace(asked, require_newest=False), now=history.now).target
    scope = [one for one in history.candidates(asked) if asked.is_about(one.step)]
    return sum(newest is None or one.order > newest.order for one in scope)


@pytest.mark.parametrize("seed", range(2))
def test_cached_answer_is_the_uncached_one_after_every_event(database: Database, seed: int) -> None:
    asyncio.run(_hold_cache(database, int(SEED or seed)))


async def _hold_cache(database: Database, seed: int) -> None:
    history, clock = History(seed), FakeClock(START)
    database.clock = clock
    with database.write() as tx:
        _add_project(tx)
        run_id = _add_run(tx, "r")
    revisions = RevisionReader(database)
    targets = ResumeTargets(database, revisions, clock=clock)
    questions = [Question(), Question(max_age_s=60.0), Question(step=3), Question(require_newest=True)]
    questions.append(Question(exclude=(1, 2, 5)))
    for _ in range(40):
        history.go_on(1)
        clock.advance((history.now - clock.now()).total_seconds())
        if history.changed:
            with database.write() as tx:
                _store_changes(tx, run_id, history)
                touch_run(tx, run_id)
        for question in questions:
            key = TargetKey(run=(1, "r"), question=question)
            kept = await targets.answer(key)
            fresh = answer_resume_target(database, project_id=1, run="r", question=question)
            assert kept.body == to_bytes(fresh), again(seed)
            assert kept is await targets.answer(key) or fresh.fresh_for_s is not None, "it is kept"
    targets.close()
    await revisions.close()


def _clock_at(history: History) -> FakeClock:
    return FakeClock(history.now)


def _stored(database: Database, count: int) -> Iterator[tuple[int, History]]:
    first_id = 1
    with database.write() as tx:
        _add_project(tx)
        for seed in seeds(count):
            history = History(seed, first_id=first_id)
            history.go_on(history.chance.randint(0, 40))
            first_id += len(history.rows)
            run_id = _add_run(tx, f"run-{seed}")
            new = [_values(row) | _place(run_id, row) for row in history.rows.values()]
            if new:
                tx.execute(insert(checkpoints), new)
            opened = [_validation(run_id, row) for row in history.rows.values() if _has_validation(row)]
            if opened:
                tx.execute(insert(validations), opened)
            yield seed, history


def _add_project(tx: Transaction) -> None:
    tx.execute(insert(projects).values(name="p", allowed_globals=[], created_at=START))
    store = {"name": "s", "url": "file:///s", "times": "original", "settle_s": 0, "mtime_tolerance_s": 0}
    tx.execute(insert(stores).values(project_id=1, created_at=START, **store))


def _add_run(tx: Transaction, name: str) -> int:
    policy = {"min_assurance": "loaded", "numerics": "report", "required_fqns": [], "min_steps": 20}
    values = {"project_id": 1, "name": name, "revision": 1, "created_at": START, "branch": 0, **policy}
    run_id: int = tx.execute(insert(runs).values(values).returning(runs.c.id)).scalar_one()
    return run_id


def _store_changes(tx: Transaction, run_id: int, history: History) -> None:
    present = set(tx.execute(select(checkpoints.c.id)).scalars())
    for row_id in sorted(history.changed):
        row = history.rows[row_id]
        if row_id in present:
            tx.execute(update(checkpoints).where(checkpoints.c.id == row_id).values(_values(row)))
        else:
            tx.execute(insert(checkpoints).values(_values(row) | _place(run_id, row)))
        is_this = (validations.c.checkpoint_id == row_id) & validations.c.state.in_(["queued", "running"])
        tx.execute(update(validations).where(is_this).values(state="cancelled"))
        if _has_validation(row):
            tx.execute(insert(validations).values(_validation(run_id, row)))
    history.changed.clear()


def _values(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in _NOT_STORED}


def _place(run_id: int, row: Row) -> Row:
    path = f"step-{row['step']}-{row['id']}"
    location = {"store_id": 1, "path": path, "location": f"file:///s/{path}"}
    return {"project_id": 1, "run_id": run_id, "expected_parts": [""], **location}


def _has_validation(row: Row) -> bool:
    return row["validation_state"] is not None or row["retry_at"] is not None


def _validation(run_id: int, row: Row) -> Row:
    """Return the one that is open, or the one after which the service asks again."""
    is_open = row["validation_state"] is not None
    values = {"project_id": 1, "run_id": run_id, "checkpoint_id": row["id"], "store_id": 1, "branch": 0}
    values |= {"step": row["step"], "reason": "registered", "requested_by": "t", "tier": 1}
    values |= {"requested_at": START, "state": row["validation_state"] or "finished"}
    values |= {"depth": row["open_depth"] if is_open else row["retry_depth"]}
    return values | {"attempts": 0, "counted_attempts": 0}
