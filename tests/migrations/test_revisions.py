"""Up, down, up on both databases; head equals the models; two upgrades at once; the audit refuses."""

import multiprocessing
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, delete, select, text, update

from ckptguard.errors import ConfigError, ConflictError, ServiceUnavailableError
from ckptguard.model.service import EventKind
from ckptguard_api.database import Database
from ckptguard_api.domain.actor import SERVICE
from ckptguard_api.repositories.events import record
from ckptguard_api.tables import METADATA, events
from ckptguard_migrations import current, downgrade, head, upgrade
from tests.migrations.schema_text import schema_of, without_triggers
from tests.postgres_server import create_database, drop_database


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a database without any table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / '100% new.sqlite'}"
        return
    server = request.getfixturevalue("postgres")
    name = f"m{os.getpid()}"
    yield create_database(server, name)
    drop_database(server, name)


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    """Return an engine of that database."""
    made = create_engine(empty_url)
    yield made
    made.dispose()


@pytest.fixture
def migrated(empty_url: str) -> Iterator[Database]:
    """Return a database at head."""
    upgrade(empty_url)
    database = Database(empty_url)
    yield database
    database.close()


def test_up_down_up_leaves_the_schema_of_the_first_time(empty_url: str, engine: Engine) -> None:
    assert current(empty_url) is None
    assert upgrade(empty_url) == head() == current(empty_url)
    first = schema_of(engine)
    assert downgrade(empty_url, "base") is None
    assert schema_of(engine) == {}
    assert upgrade(empty_url) == head()
    assert schema_of(engine) == first


def test_upgrading_again_changes_nothing(empty_url: str, engine: Engine) -> None:
    upgrade(empty_url)
    first = schema_of(engine)
    assert upgrade(empty_url) == head()
    assert schema_of(engine) == first


def test_head_is_what_the_models_declare(empty_url: str, engine: Engine) -> None:
    upgrade(empty_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_checks_defaults_and_partial_indexes_are_those_of_the_models(empty_url: str, engine: Engine) -> None:
    """Alembic's comparison sees neither checks nor the WHERE of an index."""
    METADATA.create_all(engine)
    declared = schema_of(engine)
    METADATA.drop_all(engine)
    upgrade(empty_url)
    assert without_triggers(schema_of(engine)) == declared


def test_two_processes_upgrade_at_once(empty_url: str) -> None:
    processes = multiprocessing.get_context("spawn")
    with processes.Pool(2) as pool:
        answers = pool.map(upgrade, [empty_url, empty_url], chunksize=1)
    assert answers == [head(), head()]
    assert current(empty_url) == head()


def test_a_failing_upgrade_leaves_nothing_behind(empty_url: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE verdicts (x INTEGER)"))  # in the way of a late step
    before = schema_of(engine)
    with pytest.raises(ServiceUnavailableError):
        upgrade(empty_url)
    assert schema_of(engine) == before
    assert current(empty_url) is None


def test_a_database_of_a_later_version_is_refused(empty_url: str, engine: Engine) -> None:
    upgrade(empty_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999_later'"))
    with pytest.raises(ConfigError, match=r"9999_later.*this version knows up to"):
        upgrade(empty_url)


def test_an_unreadable_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        upgrade("postgresql+psycopg:/user:hunter2")
    assert "hunter2" not in str(caught.value)


def test_events_are_added_and_never_changed(migrated: Database) -> None:
    with migrated.write() as tx:
        event = record(tx, EventKind.RUN_CREATED, actor=SERVICE)
    changes = [
        update(events).values(actor="nobody"),
        update(events).where(events.c.id == event.id).values(at=datetime(2020, 1, 1, tzinfo=UTC)),
        delete(events),
    ]
    for change in changes:
        with pytest.raises(ConflictError), migrated.write() as tx:
            tx.execute(change)
    with migrated.read() as tx:
        assert tx.execute(select(events.c.actor)).scalar_one() == SERVICE.name


def test_events_are_not_truncated(migrated: Database) -> None:
    if not migrated.is_postgresql:
        return  # SQLite has no TRUNCATE
    with pytest.raises(ConflictError), migrated.write() as tx:
        tx.execute(text("TRUNCATE events CASCADE"))
