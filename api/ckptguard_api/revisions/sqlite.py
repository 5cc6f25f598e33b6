"""Revisions of an SQLite file: at once where nothing holds them up, else by a thread."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from ckptguard.errors import ServiceUnavailableError
from ckptguard_api.database import Database
from ckptguard_api.one_thread import OneThread
from ckptguard_api.revisions.values import Revisions, RunKey, revisions_of

# `json_each` takes any number of runs in one text, which the driver prepares once. One row: the driver lets
# go of the interpreter's lock for each, and a busy event loop gives it back after a whole switch interval
# (docs/measurements.md).
_QUERY: Final = """\
SELECT json_group_array(json_array(project_id, name, id, revision)) FROM (
  SELECT r.project_id, r.name, r.id, r.revision FROM json_each(?) AS wanted CROSS JOIN runs AS r
  WHERE r.project_id = json_extract(wanted.value, '$[0]') AND r.name = json_extract(wanted.value, '$[1]')
  UNION ALL SELECT NULL, name, NULL, value FROM revisions
)"""


class SqliteRevisions:
    """One connection without a transaction, asked by the event loop itself and by one thread.

    On the loop the query takes 25 microseconds, and the way to a thread and back 200
    (docs/measurements.md). The loop never waits for a lock: whatever is not at once is the thread's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._driver: Any = None
        self._give_back: Callable[[], None] = _nothing
        self._lock = threading.Lock()
        self._thread: OneThread[Revisions] = OneThread(name="revisions")

    async def ask(self, keys: Sequence[RunKey]) -> Revisions:
        """Return what is committed when the query starts.

        Raises:
            ServiceUnavailableError: The database gave no answer.
        """
        at_once = self._read_at_once(keys)
        return at_once if at_once is not None else await self._thread.call(lambda: self._read(keys))

    async def close(self) -> None:
        """Give the connection back, after what the thread still does."""
        await asyncio.to_thread(self._thread.close, self._drop)

    def _read_at_once(self, keys: Sequence[RunKey]) -> Revisions | None:
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self._driver is None else self._query(keys)
        except ServiceUnavailableError:
            return None
        finally:
            self._lock.release()

    def _read(self, keys: Sequence[RunKey]) -> Revisions:
        """Run the query; a connection that broke since the last one is replaced once."""
        with self._lock:
            if self._driver is not None:
                try:
                    return self._query(keys)
                except ServiceUnavailableError:
                    self._drop()
            try:
                found = self._query(keys)
                self._driver.execute("PRAGMA busy_timeout=0")  # from here on it is asked by the loop
            except ServiceUnavailableError:
                self._drop()
                raise
            return found

    def _query(self, keys: Sequence[RunKey]) -> Revisions:
        try:
            if self._driver is None:
                pooled = self._database.connect_apart()
                self._driver, self._give_back = pooled.driver_connection, pooled.invalidate
            ((text,),) = self._driver.execute(_QUERY, (json.dumps(keys),)).fetchall()
        except (SQLAlchemyError, self._database.engine.dialect.loaded_dbapi.Error) as error:
            msg = f"the database gave no answer: {type(error).__name__}"
            raise ServiceUnavailableError(msg) from error
        return revisions_of(keys, json.loads(text))

    def _drop(self) -> None:
        give_back, self._driver, self._give_back = self._give_back, None, _nothing
        give_back()


def _nothing() -> None:
    pass
