"""Revisions of runs and of `tokens`, read once for all requests that arrive together.

A cached value is exact while the revision it was made at is still the database's. Reading a revision costs
a query, and a query for each request would be the whole cost of a resume target: so requests share it.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from ckptguard.errors import ServiceUnavailableError
from ckptguard_api.database import Database

RunKey = tuple[int, str]
"""Project id and the run's name."""

READ_TIMEOUT_S: Final = 5.0
"""How long a request waits for the database before it is told that there is no answer."""

# `json_each` and `unnest` take any number of runs in one text, which the drivers prepare once.
_SQLITE: Final = """\
SELECT r.project_id, r.name, r.id, r.revision FROM json_each(?) AS wanted CROSS JOIN runs AS r
WHERE r.project_id = json_extract(wanted.value, '$[0]') AND r.name = json_extract(wanted.value, '$[1]')
UNION ALL SELECT NULL, name, NULL, value FROM revisions"""
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
        runs: Those asked for that exist.
        named: All rows of table `revisions`, e.g. `tokens`.
    """

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
        self._thread: ThreadPoolExecutor | None = None
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
        if self._thread is not None:
            self._thread.submit(self._connection.close)
            self._thread.shutdown(wait=True)
            self._thread = None

    async def _run(self) -> None:
        # A task starts in the next turn of the loop: whatever else arrived in this one shares the query.
        while self._next is not None:
            batch, self._next = self._next, None
            await self._answer(batch)
        self._running = None

    async def _answer(self, batch: _Batch) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="revisions")
        loop = asyncio.get_running_loop()
        query = loop.run_in_executor(self._thread, self._connection.read, sorted(batch.keys))
        query.add_done_callback(_take_exception)
        await asyncio.wait([query], timeout=self._timeout_s)
        if not query.done():
            msg = f"the database gave no answer within {self._timeout_s:g} s"
            batch.fail(ServiceUnavailableError(msg))
            return
        error = query.exception()
        if error is None:
            batch.answer(query.result())
        else:
            batch.fail(error)


def _take_exception(query: asyncio.Future[Revisions]) -> None:
    query.exception()  # nobody waits for a query that took too long


class _KeptConnection:
    """One connection without a transaction: each query sees what is committed when it starts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._driver: Any = None
        self._give_back: Callable[[], None] = _nothing
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
                return self._query(keys)
            except ServiceUnavailableError:
                self._drop()
                raise

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._drop()

    def _query(self, keys: list[RunKey]) -> Revisions:
        try:
            if self._driver is None:
                self._connect()
            rows = self._driver.execute(*self._statement(keys)).fetchall()
        except (SQLAlchemyError, self._database.engine.dialect.loaded_dbapi.Error) as error:
            msg = f"the database gave no answer: {type(error).__name__}"
            raise ServiceUnavailableError(msg) from error
        return _revisions(rows)

    def _statement(self, keys: list[RunKey]) -> tuple[str, tuple[Any, ...]]:
        if self._database.is_postgresql:
            return _POSTGRESQL, ([key[0] for key in keys], [key[1] for key in keys])
        return _SQLITE, (json.dumps(keys),)

    def _connect(self) -> None:
        pooled = self._database.engine.raw_connection()
        self._driver, self._give_back = pooled.driver_connection, pooled.invalidate
        if self._database.is_postgresql:
            self._driver.autocommit = True

    def _drop(self) -> None:
        give_back, self._driver, self._give_back = self._give_back, None, _nothing
        give_back()


def _nothing() -> None:
    pass


def _revisions(rows: list[tuple[Any, ...]]) -> Revisions:
    return Revisions(
        runs=MappingProxyType(
            {
                (project_id, name): RunRevision(run_id=run_id, revision=revision)
                for project_id, name, run_id, revision in rows
                if project_id is not None
            }
        ),
        named=MappingProxyType({name: value for project, name, _, value in rows if project is None}),
    )
