"""Databases for tests of the service, empty and at head: copies of one that was migrated once."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from ckptguard.testing.fakes import FakeClock
from ckptguard_api.database import Database
from ckptguard_migrations import upgrade
from tests.postgres_server import create_database, drop_database

_NUMBERS = itertools.count()


@contextmanager
def fresh_database(
    kind: str, *, folder: Path, postgres: str | None = None, clock: FakeClock | None = None
) -> Iterator[Database]:
    """Yield an empty database at head.

    Args:
        kind: `memory`, `sqlite` or `postgresql`.
        folder: For the SQLite file.
        postgres: URL of a server.
        clock: Time; None: real.
    """
    name = f"t{os.getpid()}_{next(_NUMBERS)}"
    database = Database(_url_of_new(kind, name, folder=folder, postgres=postgres), clock=clock)
    if kind == "memory":
        _fill_memory(database)
    try:
        yield database
    finally:
        database.close()
    if postgres is not None and kind == "postgresql":
        drop_database(postgres, name)


def _url_of_new(kind: str, name: str, *, folder: Path, postgres: str | None) -> str:
    if kind == "memory":
        return "sqlite://"
    if kind == "sqlite":
        file = folder / f"{name}.sqlite"
        file.write_bytes(_migrated_file())
        return f"sqlite:///{file}"
    assert postgres is not None
    return create_database(postgres, name, template=_migrated_template(postgres))


@cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="ckg-migrated-") as folder:
        file = Path(folder) / "empty.sqlite"
        upgrade(f"sqlite:///{file}")
        return file.read_bytes()


@cache
def _migrated_template(postgres: str) -> str:
    name = f"template_{os.getpid()}"
    upgrade(create_database(postgres, name))
    return name


def _fill_memory(database: Database) -> None:
    # Its one connection is the database: a migration over another would fill another.
    connection = database.engine.raw_connection()
    connection.driver_connection.deserialize(_migrated_file())  # type: ignore[union-attr]
    connection.close()
