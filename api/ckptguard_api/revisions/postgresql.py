"""Revisions of a PostgreSQL database, read by the event loop itself.

A thread, or psycopg's asynchronous connection, costs ten times the processor time of the query's own bytes,
and under load a request waits for the interpreter's lock on both ways (docs/measurements.md). So the loop
speaks through `psycopg.pq`, as libpq's chapter on asynchronous commands says.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from sqlalchemy.exc import SQLAlchemyError

from ckptguard.errors import ServiceUnavailableError
from ckptguard_api.database import Database
from ckptguard_api.domain.storable_text import storable
from ckptguard_api.revisions.values import Revisions, RunKey, revisions_of

_NAME: Final = b"ckptguard_revisions"
_QUERY: Final = b"""\
SELECT r.project_id, r.name, r.id, r.revision
FROM unnest($1::bigint[], $2::text[]) AS wanted (project_id, name) JOIN runs AS r USING (project_id, name)
UNION ALL SELECT NULL, name, NULL, value FROM revisions"""
_FORMATS: Final = (PyFormat.TEXT, PyFormat.TEXT)


class PostgresRevisions:
    """One connection without a transaction: each query sees what is committed when it starts.

    Args:
        database: Asked over a connection that is none of its pool's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._opening: asyncio.Future[_ReadyConnection] | None = None

    async def ask(self, keys: Sequence[RunKey]) -> Revisions:
        """Return what is committed when the query starts; a connection that broke is replaced once.

        Raises:
            ServiceUnavailableError: The database gave no answer.
        """
        was_open = self._opening is not None
        with _translated():
            try:
                return await self._ask(keys)
            except psycopg.OperationalError:
                if not was_open:
                    raise
            return await self._ask(keys)

    async def close(self) -> None:
        """Close the connection; one that is still being opened is waited for."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
            self._drop()

    async def _ask(self, keys: Sequence[RunKey]) -> Revisions:
        if self._opening is None:
            self._opening = asyncio.ensure_future(asyncio.to_thread(_ReadyConnection, self._database))
        # Whoever gives up leaves it opening: the next one finds it open.
        try:
            connection = await asyncio.shield(self._opening)
        except Exception:
            self._opening = None
            raise
        try:
            return revisions_of(keys, await connection.rows(keys))
        except BaseException:  # nobody knows what such a connection says next, a cancelled one too
            self._drop()
            raise

    def _drop(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None and opening.exception() is None:
            opening.result().close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, SQLAlchemyError) as error:
        msg = f"the database gave no answer: {type(error).__name__}"
        raise ServiceUnavailableError(msg) from error


class _ReadyConnection:
    """A connection that knows the query.

    Raises:
        psycopg.Error: The database is not there, or has no such tables.
        sqlalchemy.exc.SQLAlchemyError: The same, as its pool says it.
    """

    def __init__(self, database: Database) -> None:
        pooled = database.connect_apart()
        self.close = pooled.invalidate
        driver: Any = pooled.driver_connection
        try:
            driver.autocommit = True
            self._transformer = Transformer(driver)
            self._pg: psycopg.pq.abc.PGconn = driver.pgconn
            _require(self._pg.prepare(_NAME, _QUERY), ExecStatus.COMMAND_OK)
            self._pg.nonblocking = 1
        except psycopg.Error:
            self.close()
            raise

    async def rows(self, keys: Sequence[RunKey]) -> Sequence[Sequence[Any]]:
        """Run the query.

        Raises:
            psycopg.Error: It gave no rows; the connection is to be closed.
        """
        asked = [key for key in keys if storable(key[1]) == key[1]]  # of any other name there is no run
        parameters = ([key[0] for key in asked], [key[1] for key in asked])
        self._pg.send_query_prepared(_NAME, self._transformer.dump_sequence(parameters, _FORMATS))
        result = await self._received(asyncio.get_running_loop())
        _require(result, ExecStatus.TUPLES_OK)
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    async def _received(self, loop: asyncio.AbstractEventLoop) -> PGresult:
        answer: asyncio.Future[PGresult] = loop.create_future()
        socket = self._pg.socket
        loop.add_reader(socket, self._receive, answer)
        try:
            if self._pg.flush():  # more than the socket takes at once
                loop.add_writer(socket, self._send, answer)
            return await answer
        finally:
            loop.remove_reader(socket)
            loop.remove_writer(socket)

    def _send(self, answer: asyncio.Future[PGresult]) -> None:
        with _told(answer):
            if not self._pg.flush():
                asyncio.get_running_loop().remove_writer(self._pg.socket)

    def _receive(self, answer: asyncio.Future[PGresult]) -> None:
        with _told(answer):
            self._pg.consume_input()
            if self._pg.is_busy() or answer.done():
                return
            result = self._pg.get_result()
            while self._pg.get_result() is not None:
                pass
            assert result is not None  # noqa: S101 - a query was sent
            answer.set_result(result)


@contextmanager
def _told(answer: asyncio.Future[PGresult]) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        if not answer.done():
            answer.set_exception(error)


def _require(result: PGresult, status: ExecStatus) -> None:
    if result.status != status:
        raise error_from_result(result)
