"""How a store does is told by what the tables know, the same on both databases."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import update

from ckptguard.model.verdict import Verdict
from ckptguard_api.database import Database
from ckptguard_api.tables import checkpoints, stores, validations, verdicts
from ckptguard_api.use_cases.store_health import LAST_VERDICTS, StoreHealth, StoreState, show_stores
from tests import service_rows as rows
from tests.started_run import Training


def health(training: Training) -> StoreHealth:
    (store,) = show_stores(training.services, project_id=training.project_id, after_name=None, limit=5).items
    return store


def judge(
    training: Training, verdict: Verdict, *, at: datetime | None = None, is_retryable: bool = False
) -> int:
    """Add a checkpoint with a verdict, and return its validation."""
    saved = training.save(9, verdict=verdict)
    with training.database.write() as tx:
        found = tx.execute(checkpoints.select().where(checkpoints.c.id == saved)).one()
        given = found.verdict_validation_id
        tx.execute(
            update(verdicts).where(verdicts.c.validation_id == given).values(is_retryable=is_retryable)
        )
        if at is not None:
            tx.execute(update(validations).where(validations.c.id == given).values(finished_at=at))
    validation_id: int = given
    return validation_id


def test_an_unused_store_claims_nothing(database: Database) -> None:
    store = health(Training(database=database))
    assert store.state is StoreState.UNUSED
    assert (store.queued, store.running, store.workers, store.retries) == (0, 0, 0, 0)
    assert (store.bytes_per_s, store.last_valid, store.last_bad, store.longest_unread_at) == (None,) * 4


def test_what_waits_without_a_worker_is_told(database: Database) -> None:
    training = Training(database=database)
    saved = training.save(1, verdict=None)
    with database.write() as tx:
        rows.add_validation(tx, saved)
        rows.add_worker(tx, "elsewhere", capabilities={"stores": ["other"]})
        rows.add_worker(tx, "lost", seen_at=tx.now - timedelta(hours=1))
        rows.add_worker(tx, "leaving", is_draining=True)
    assert health(training).state is StoreState.NO_WORKER
    with database.write() as tx:
        rows.add_worker(tx, "all", capabilities={"stores": ["*"]})
    store = health(training)
    assert (store.state, store.queued, store.workers) == (StoreState.WORKING, 1, 1)
    assert store.oldest_at is not None


def test_a_store_fails_when_its_last_verdicts_are_all_in_doubt(database: Database) -> None:
    training = Training(database=database)
    judge(training, Verdict.VALID)
    for _ in range(3):
        assert health(training).state is StoreState.WORKING
        judge(training, Verdict.UNKNOWN, is_retryable=True)
    store = health(training)
    assert store.state is StoreState.FAILING
    assert store.counts == {"VALID": 1, "INVALID": 0, "UNKNOWN": 3}
    judge(training, Verdict.INVALID)
    assert health(training).state is StoreState.WORKING, "damage is no fault of the store's reach"


def test_the_last_ones_are_those_that_ended_last(database: Database) -> None:
    training = Training(database=database)
    with database.read() as tx:
        now = tx.now
    newest = judge(training, Verdict.VALID, at=now)
    judge(training, Verdict.INVALID, at=now - timedelta(days=1))
    for _ in range(LAST_VERDICTS):
        judge(training, Verdict.VALID, at=now - timedelta(hours=1))
    store = health(training)
    assert store.last_valid is not None
    assert store.last_valid.id == newest
    assert store.last_bad is None, "it is not among the last ones"
    assert store.bytes_per_s == pytest.approx(4096)


def test_scrubs_that_are_overdue_and_retries_are_counted(database: Database) -> None:
    training = Training(database=database)
    old, new, asked_again = training.save(1), training.save(2), training.save(3, verdict=None)
    with database.write() as tx:
        ago = update(checkpoints).where(checkpoints.c.id == old)
        tx.execute(ago.values(validated_at=tx.now - timedelta(days=8)))
        tx.execute(update(stores).values(scrub_every_s=7 * 86_400.0))
        retry = update(checkpoints).where(checkpoints.c.id == asked_again)
        tx.execute(retry.values(retry_at=tx.now + timedelta(minutes=1)))
    store = health(training)
    assert (store.overdue, store.retries) == (1, 1)
    assert store.retry_at is not None
    assert store.longest_unread_at is not None
    with database.write() as tx:
        held = update(checkpoints).where(checkpoints.c.id.in_([old, new]))
        tx.execute(held.values(is_quarantined=True))
    assert health(training).overdue == 0, "what nobody may use is not read again"


def test_stores_come_page_by_page_and_without_those_of_others(database: Database) -> None:
    training = Training(database=database)
    with database.write() as tx:
        other = rows.add_project(tx, "other")
        rows.add_store(tx, other, "secret")
        rows.add_store(tx, training.project_id, "archive")
    first = show_stores(training.services, project_id=training.project_id, after_name=None, limit=1)
    rest = show_stores(training.services, project_id=training.project_id, after_name=first.next, limit=1)
    assert [one.row.name for page in (first, rest) for one in page.items] == ["archive", "demo"]
    assert rest.next is None
