"""One database, two kinds: an SQLite file of one API process, or PostgreSQL shared by several.

One request is one transaction. Everything in `Database.write` is committed together or not at all, and
errors of the driver leave as errors of `ckptguard.errors`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Connection, CursorResult, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import PoolProxiedConnection, StaticPool
from sqlalchemy.sql import Executable

from ckptguard.clock import Clock, SystemClock
from ckptguard.errors import ConfigError, ConflictError, InvalidRequestError, ServiceUnavailableError
from ckptguard_api.event_buffer import EventBuffer

_BUSY_TIMEOUT_MS: Final = 30_000
_STATEMENT_TIMEOUT_MS: Final = 60_000
# Many look-ups of few rows each: to compile them costs more than it saves, and so does the guess that a disk
# has to seek. (The list of 1,000 runs: 80 ms; 36 without the guess, 25 without both.)
_POSTGRESQL_OPTIONS: Final = (
    f"-c statement_timeout={_STATEMENT_TIMEOUT_MS} -c jit=off -c random_page_cost=1.1"
)
_POOL_TIMEOUT_S: Final = 10.0

CommitListener = Callable[[frozenset[int]], None]


@dataclass(kw_only=True)
class Transaction:
    """What a use case works in.

    Args:
        connection: Inside a transaction.
        clock: Asked where the database is not.
        touched_runs: Runs whose revision this transaction raised; told to listeners after the commit.
        events: Written last, whenever they were recorded.
    """

    connection: Connection
    clock: Clock | None
    touched_runs: set[int] = field(default_factory=set)
    events: EventBuffer = field(default_factory=EventBuffer)

    @cached_property
    def now(self) -> datetime:
        """The time of this transaction, the same throughout.

        PostgreSQL's own, so that API machines need not agree about the time; else this machine's.
        """
        if self.clock is not None:
            return self.clock.now()
        if self.is_postgresql:
            now: datetime = self.connection.execute(text("SELECT clock_timestamp()")).scalar_one()
            return now
        return SystemClock().now()

    @property
    def is_postgresql(self) -> bool:
        """Whether rows can be locked one by one; SQLite has one writer at a time anyway."""
        return self.connection.dialect.name == "postgresql"

    def execute(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> CursorResult[Any]:
        """Run one statement."""
        return self.connection.execute(statement, parameters)


class Database:
    """The engine, and the two ways to use it.

    Args:
        url: As SQLAlchemy takes it: `sqlite:///path`, `postgresql+psycopg://…`; `sqlite://` lives in memory.
        clock: Time for tests; None: the database's or this machine's.
        pool_size: Connections at most.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, pool_size: int = 10) -> None:
        self.engine = _engine(url, pool_size)
        self.clock = clock
        self.commit_listeners: list[CommitListener] = []
        self._writer = nullcontext() if self.is_postgresql else threading.RLock()

    @property
    def is_postgresql(self) -> bool:
        """Whether several API processes may share it."""
        return self.engine.dialect.name == "postgresql"

    @property
    def _one_moment(self) -> dict[str, Any]:
        # PostgreSQL's default would show each statement what was committed before that statement.
        if self.is_postgresql:
            return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        return {}

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Read at one moment; nothing is written.

        Raises:
            ServiceUnavailableError: The database gave no answer.
        """
        reading = self.engine.execution_options(**self._one_moment)
        with _translated(), reading.connect() as connection, connection.begin() as transaction:
            yield Transaction(connection=connection, clock=self.clock)
            transaction.rollback()

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Commit all that is done inside, or nothing.

        Raises:
            ConflictError: A constraint of the tables forbids it.
            ServiceUnavailableError: The database gave no answer; whether it was committed is not known.
        """
        writing = self.engine.execution_options(is_writing=True)
        with _translated(), self._writer, writing.connect() as connection, connection.begin():
            transaction = Transaction(connection=connection, clock=self.clock)
            yield transaction
            transaction.events.write(connection)
        if transaction.touched_runs:
            for listener in self.commit_listeners:
                listener(frozenset(transaction.touched_runs))

    def connect_apart(self) -> PoolProxiedConnection:
        """Open a connection that is none of the pool's: its holder waits for nobody else's.

        Of a database in memory it is the only one that there is.
        """
        pool = self.engine.pool
        return (pool if isinstance(pool, StaticPool) else pool.recreate()).connect()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        msg = f"the tables forbid it: {error.orig}"
        raise ConflictError(msg) from error
    except (DataError, OverflowError) as error:  # sqlite3 says OverflowError of a number beyond 64 bits
        msg = "a value that the database cannot hold: a number beyond 64 bits, or NUL in a text"
        raise InvalidRequestError(msg) from error
    except (DBAPIError, PoolTimeoutError) as error:
        msg = f"the database gave no answer: {type(error).__name__}"
        raise ServiceUnavailableError(msg) from error


def _engine(url: str, pool_size: int) -> Engine:
    kind = make_url(url).get_backend_name()
    if kind == "sqlite":
        return _sqlite_engine(url, pool_size)
    if kind == "postgresql":
        return create_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=_POOL_TIMEOUT_S,
            pool_pre_ping=True,
            connect_args={"options": _POSTGRESQL_OPTIONS, "connect_timeout": 10},
        )
    msg = f"a database of kind {kind!r}; sqlite and postgresql+psycopg are supported"
    raise ConfigError(msg)


def _sqlite_engine(url: str, pool_size: int) -> Engine:
    arguments: dict[str, Any] = {"connect_args": {"check_same_thread": False}}
    if make_url(url).database in (None, "", ":memory:"):
        arguments["poolclass"] = StaticPool
    else:
        arguments |= {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": _POOL_TIMEOUT_S}
    engine = create_engine(url, **arguments)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's
    connection.isolation_level = None  # transactions are ours to begin
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # what was acknowledged survives a power cut
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A reader that becomes a writer half way may find that another was faster; a writer says so first.
    is_writing = connection.get_execution_options().get("is_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")
