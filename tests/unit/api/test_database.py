"""One transaction is all or nothing, on both kinds of database."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, insert, select

from ckptguard.errors import ConflictError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.repositories.events import record
from ckptguard_api.tables import events, projects


def _record_and_add_a_project_twice(database: Database) -> None:
    with database.write() as tx:
        record(tx, EventKind.STORE_CHANGED, actor=SERVICE)
        for _ in range(2):
            tx.execute(insert(projects).values(name="p", allowed_globals=[], created_at=tx.now))


def test_what_a_constraint_forbids_is_a_conflict_and_leaves_nothing(database: Database) -> None:
    with pytest.raises(ConflictError):
        _record_and_add_a_project_twice(database)
    with database.read() as tx:
        assert tx.execute(select(func.count()).select_from(events)).scalar_one() == 0
        assert tx.execute(select(func.count()).select_from(projects)).scalar_one() == 0


def test_times_come_back_as_they_went_in(database: Database) -> None:
    with database.write() as tx:
        tx.execute(insert(projects).values(name="p", allowed_globals=["a.b"], created_at=tx.now))
        put = tx.now
    with database.read() as tx:
        row = tx.execute(select(projects)).one()
    assert row.created_at == put
    assert row.created_at.utcoffset().total_seconds() == 0


def test_whoever_records_an_event_keeps_nobody_waiting(database: Database) -> None:
    if not database.is_postgresql:
        return  # SQLite has one writer at a time anyway
    with database.write() as tx:
        late = record(tx, EventKind.STORE_CHANGED, actor=SERVICE)
        with ThreadPoolExecutor(1) as pool:
            early = pool.submit(_record_one, database).result(timeout=10)
    assert early < late.id, "ids are given in the order of the commits"


def test_events_of_one_transaction_are_written_in_the_order_they_were_recorded(database: Database) -> None:
    kinds = [EventKind.RUN_CHANGED, EventKind.STORE_CHANGED, EventKind.RUN_CREATED] * 700
    with database.write() as tx:
        recorded = [record(tx, kind, actor=SERVICE, data={"number": n}) for n, kind in enumerate(kinds)]
    with database.read() as tx:
        rows = tx.execute(select(events.c.id, events.c.data).order_by(events.c.id)).all()
    assert [row.data["number"] for row in rows] == list(range(len(kinds)))
    assert [row.id for row in rows] == [event.id for event in recorded]


def _record_one(database: Database) -> int:
    with database.write() as tx:
        event = record(tx, EventKind.RUN_CHANGED, actor=SERVICE)
    return event.id
