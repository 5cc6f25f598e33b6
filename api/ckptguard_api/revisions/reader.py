"""Revisions, read once for all requests that arrive together.

A cached value is exact while the revision it was made at is still the database's. Reading a revision costs
a query, and a query for each request would be the whole cost of a resume target: so requests share it.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ckptguard.errors import ServiceUnavailableError
from ckptguard_api.database import Database
from ckptguard_api.revisions.sqlite import SqliteRevisions
from ckptguard_api.revisions.values import Revisions, RevisionSource, RunKey

READ_TIMEOUT_S: Final = 5.0
"""How long a request waits for the database before it is told that there is no answer."""


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
        self.source = _source_of(database)
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

    async def close(self) -> None:
        """Let the connection go, after the query that is under way."""
        if self._running is not None:
            await self._running
        await self.source.close()

    async def _run(self) -> None:
        # A task starts in the next turn of the loop: whatever else arrived in this one shares the query.
        while self._next is not None:
            batch, self._next = self._next, None
            try:
                async with asyncio.timeout(self._timeout_s):
                    batch.answer(await self.source.ask(list(batch.keys)))
            except TimeoutError:
                msg = f"the database gave no answer within {self._timeout_s:g} s"
                batch.fail(ServiceUnavailableError(msg))
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for it are told
                batch.fail(error)
        self._running = None


def _source_of(database: Database) -> RevisionSource:
    if database.is_postgresql:
        from ckptguard_api.revisions.postgresql import PostgresRevisions  # noqa: PLC0415 - psycopg is an extra

        return PostgresRevisions(database)
    return SqliteRevisions(database)
