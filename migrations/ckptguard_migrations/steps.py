"""Move a database from one revision to another, all steps together or none."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from ckptguard.errors import ConfigError, ServiceUnavailableError

_FOLDER: Final = Path(__file__).parent
_LOCK: Final = 0x636B706D  # "ckpm"
_BUSY_TIMEOUT_S: Final = 60.0
_CONNECT_TIMEOUT_S: Final = 10


def upgrade(url: str, revision: str = "head") -> str | None:
    """Bring a database to a later revision; to the one it is at: nothing happens.

    Args:
        url: As SQLAlchemy takes it: `sqlite:///path`, `postgresql+psycopg://…`.
        revision: A revision's id, or `head`.

    Returns:
        The revision that it is at afterwards.

    Raises:
        ConfigError: No such revision, or a database that this version does not know.
        ServiceUnavailableError: The database gave no answer.

    Guarantees: all steps are one transaction; two upgrades at once run one after the other.
    """
    with _migrating(url) as connection:
        command.upgrade(_config(connection), revision)
        return _revision_of(connection)


def downgrade(url: str, revision: str) -> str | None:
    """Bring a database to an earlier revision; what only the later one can hold is lost.

    Args:
        url: As for `upgrade`.
        revision: A revision's id, or `base`: no table is left.

    Returns:
        The revision that it is at afterwards; None: base.

    Raises:
        ConfigError, ServiceUnavailableError: As for `upgrade`.
    """
    with _migrating(url) as connection:
        command.downgrade(_config(connection), revision)
        return _revision_of(connection)


def current(url: str) -> str | None:
    """Return the revision that a database is at; None: it was never upgraded.

    Raises:
        ConfigError, ServiceUnavailableError: As for `upgrade`.
    """
    with _connected(url) as connection:
        return _revision_of(connection)


@cache
def head() -> str:
    """Return the newest revision that this version knows."""
    (newest,) = ScriptDirectory.from_config(_config(None)).get_heads()
    return newest


def _revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _config(connection: Connection | None) -> Config:
    config = Config()
    # A ConfigParser reads it, for which a percent sign is special.
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@contextmanager
def _migrating(url: str) -> Iterator[Connection]:
    with _connected(url, begin="BEGIN IMMEDIATE") as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        yield connection


@contextmanager
def _connected(url: str, *, begin: str = "BEGIN") -> Iterator[Connection]:
    """Yield a connection in a transaction, which is committed unless an error leaves.

    Args:
        url: Of the database.
        begin: How SQLite begins it; a writer says so first.
    """
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args=_connect_arguments(url))
    except ArgumentError as error:
        msg = "the database's URL cannot be read"  # it may hold a password: not repeated
        raise ConfigError(msg) from error
    if engine.dialect.name == "sqlite":
        _make_private(engine.url.database)
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    try:
        with engine.begin() as connection:
            yield connection
    except CommandError as error:
        msg = f"{error}; this version knows up to {head()}"
        raise ConfigError(msg) from error
    except DBAPIError as error:
        msg = f"the database gave no answer: {type(error.orig).__name__}"
        raise ServiceUnavailableError(msg) from error
    finally:
        engine.dispose()


def _make_private(file: str | None) -> None:
    """Make a new SQLite file that only its owner can read: secrets of webhooks lie in it.

    SQLite gives the `-wal` and `-shm` beside it the same mode. A file that is there stays as it is.
    """
    if not file or file == ":memory:" or file.startswith("file:"):
        return
    with suppress(OSError):  # connecting says what is wrong
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _connect_arguments(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"timeout": _BUSY_TIMEOUT_S}
    return {"connect_timeout": _CONNECT_TIMEOUT_S}


def _leave_transactions_to_us(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's
    connection.isolation_level = None  # the driver would commit before each DDL statement
