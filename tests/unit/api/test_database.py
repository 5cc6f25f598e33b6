"""One transaction is all or nothing, on both kinds of database."""

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
