"""Revisions of runs and of `tokens`, read once for all requests that arrive together.

A cached value is exact while the revision it was made at is still the database's. Reading a revision costs
a query, and a query for each request would be the whole cost of a resume target: so requests share it.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from ckptguard.errors import ServiceUnavailableError
from ckptguard_api.database import Database
from ckptguard_api.one_thread import OneThread

RunKey = tuple[int, str]
"""Project id and the run's name."""

READ_TIMEOUT_S: Final = 5.0
"""How long a request waits for the database before it is told that there is no answer."""

# `json_each` and `unnest` take any number of runs in one text, which the drivers prepare once.
# One row for SQLite: its driver lets go of the interpreter's lock for each, and a busy event loop gives it
# back after a whole switch interval (docs/measurements.md).
_SQLITE: Final = """\
SELECT json_group_array(json_array(project_id, name, id, revision)) FROM (
  SELECT r.project_id, r.name, r.id, r.revision FROM json_each(?) AS wanted CROSS JOIN runs AS r
  WHERE r.project_id = json_extract(wanted.value, '$[0]') AND r.name = json_extract(wanted.value, '$[1]')
  UNION ALL SELECT NULL, name, NULL, value FROM revisions
)"""
_POSTGRESQL: Final = """\
SELECT r.project_id, r.name, r.id, r.revision
FROM unnest(%s::bigint[], %s::text[]) AS wanted (project_id, name) JOIN runs AS r USING (project_id, name)
UNION ALL SELECT NULL, name, NULL, value FROM revisions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRevision:
    """A run as it stood when the query ran.

    Args:
        run_id: Its row.
        revision: Raised by every change that a resume target of it may show.
    """

    run_id: int
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisions:
    """What one query saw, at one moment.

    Args:
        asked: Runs that it was asked about; others may exist.
        runs: Those asked for that exist.
        named: All rows of table `revisions`, e.g. `tokens`.
    """

    asked: AbstractSet[RunKey]
    runs: Mapping[RunKey, RunRevision]
    named: Mapping[str, int]


@dataclass(slots=True)
class _Batch:
    keys: set[RunKey] = field(default_factory=set)
    waiting: list[asyncio.Future[Revisions]] = field(default_factory=list)

    def answer(self, revisions: Revisions) -> None:
        for one in self.waiting:
            if not one.done():  # its request was given up
                one.set_result(revisions)

    def fail(self, error: BaseException) -> None:
        for one in self.waiting:
            if not one.done():
                one.set_exception(error)


class RevisionReader:
    """Reads revisions; used on one event loop.

    Guarantees: the query behind an answer started after `read` was called, so the answer shows every
    transaction, of any process, that was committed before. At most one query runs at a time.

    Args:
        database: Asked over one connection that is kept.
        timeout_s: Longest wait for one query; a caller may have to wait for two.
    """

    def __init__(self, database: Database, *, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._connection = _KeptConnection(database)
        self._thread: OneThread[Revisions] = OneThread(name="revisions")
        self._timeout_s = timeout_s
        self._next: _Batch | None = None
        self._running: asyncio.Task[None] | None = None

    async def read(self, runs: Iterable[RunKey] = ()) -> Revisions:
        """Return the revisions of these runs, and all named ones.

        Raises:
            ServiceUnavailableError: The database gave no answer in time.
        """
        if self._next is None:
            self._next = _Batch()
        self._next.keys.update(runs)
        mine: asyncio.Future[Revisions] = asyncio.get_running_loop().create_future()
        self._next.waiting.append(mine)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await mine

    def close(self) -> None:
        """Let the connection go; to be called outside of the event loop, for it waits for the query."""
        self._thread.close(self._connection.close)

    async def _run(self) -> None:
        # A task starts in the next turn of the loop: whatever else arrived in this one shares the query.
        while self._next is not None:
            batch, self._next = self._next, None
            try:
                await self._answer(batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for it are told
                batch.fail(error)
        self._running = None

    async def _answer(self, batch: _Batch) -> None:
        at_once = self._connection.read_at_once(list(batch.keys))
        if at_once is None:
            await self._answer_from_thread(batch)
        else:
            batch.answer(at_once)

    async def _answer_from_thread(self, batch: _Batch) -> None:
        keys = sorted(batch.keys)
        try:
            async with asyncio.timeout(self._timeout_s):
                batch.answer(await self._thread.call(lambda: self._connection.read(keys)))
        except TimeoutError:
            msg = f"the database gave no answer within {self._timeout_s:g} s"
            batch.fail(ServiceUnavailableError(msg))


class _KeptConnection:
    """One connection without a transaction: each query sees what is committed when it starts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._driver: Any = None
        self._give_back: Callable[[], None] = _nothing
        self._is_at_once = not database.is_postgresql
        self._lock = threading.Lock()

    def read(self, keys: list[RunKey]) -> Revisions:
        """Run the query; a connection that broke since the last one is replaced once."""
        with self._lock:
            if self._driver is not None:
                try:
                    return self._query(keys)
                except ServiceUnavailableError:
                    self._drop()
            try:
                found = self._query(keys)
                if self._is_at_once:
                    self._driver.execute("PRAGMA busy_timeout=0")  # from here on it is asked by the loop
            except ServiceUnavailableError:
                self._drop()
                raise
            return found

    def read_at_once(self, keys: list[RunKey]) -> Revisions | None:
        """Run the query on the event loop, where that takes less than to ask a thread; None: ask it.

        Of a file in write-ahead mode it takes 25 microseconds, and the way to a thread and back 200
        (docs/measurements.md). It never waits for a lock: whatever is not at once is the thread's.
        """
        if not self._is_at_once or not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self._driver is None else self._query(keys)
        except ServiceUnavailableError:
            return None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._drop()

    def _query(self, keys: list[RunKey]) -> Revisions:
        try:
            if self._driver is None:
                self._connect()
            rows = self._rows(keys)
        except (SQLAlchemyError, self._database.engine.dialect.loaded_dbapi.Error) as error:
            msg = f"the database gave no answer: {type(error).__name__}"
            raise ServiceUnavailableError(msg) from error
        return _revisions(keys, rows)

    def _rows(self, keys: list[RunKey]) -> Sequence[Sequence[Any]]:
        if self._database.is_postgresql:
            asked = ([key[0] for key in keys], [key[1] for key in keys])
            found: Sequence[Sequence[Any]] = self._driver.execute(_POSTGRESQL, asked).fetchall()
        else:
            ((text,),) = self._driver.execute(_SQLITE, (json.dumps(keys),)).fetchall()
            found = json.loads(text)
        return found

    def _connect(self) -> None:
        pooled = self._database.connect_apart()
        self._driver, self._give_back = pooled.driver_connection, pooled.invalidate
        if self._database.is_postgresql:
            self._driver.autocommit = True

    def _drop(self) -> None:
        give_back, self._driver, self._give_back = self._give_back, None, _nothing
        give_back()


def _nothing() -> None:
    pass


def _revisions(keys: Iterable[RunKey], rows: Iterable[Sequence[Any]]) -> Revisions:
    runs: dict[RunKey, RunRevision] = {}
    named: dict[str, int] = {}
    for project_id, name, run_id, revision in rows:
        if project_id is None:
            named[name] = revision
        else:
            runs[project_id, name] = RunRevision(run_id=run_id, revision=revision)
    return Revisions(asked=frozenset(keys), runs=runs, named=named)
