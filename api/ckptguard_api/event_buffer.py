"""Events of one transaction, kept until it is about to commit, then written in one go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, insert, text

from ckptguard_api.tables import events

_ORDER_LOCK: Final = 0x636B7074  # "ckpt"


@dataclass(slots=True, kw_only=True)
class NewEvent:
    """An event that is not written yet.

    Args:
        values: Of its row.
        row_id: Given with the commit; None before.
    """

    values: Mapping[str, Any]
    row_id: int | None = None

    @property
    def id(self) -> int:
        """Its id, once the transaction is committed."""
        assert self.row_id is not None, "an event has no id before its transaction is committed"  # noqa: S101 - misuse
        return self.row_id


@dataclass(slots=True)
class EventBuffer:
    """Collects events in their order; `Database.write` writes them, last."""

    _waiting: list[NewEvent] = field(default_factory=list)

    def add(self, values: Mapping[str, Any]) -> NewEvent:
        """Keep one row."""
        event = NewEvent(values=values)
        self._waiting.append(event)
        return event

    def write(self, connection: Connection) -> None:
        """Insert what was kept; nothing but the commit may follow.

        Guarantees: ids become visible in their order, so that whoever remembers the last id it saw
        misses none. PostgreSQL gives ids before commits, hence a lock that all writers of events share,
        held until the commit. No transaction waits for another while it holds that lock: rows that an
        event refers to are never locked against references (`key_share`), so there is no deadlock.
        """
        if not self._waiting:
            return
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ORDER_LOCK})
        statement = insert(events).returning(events.c.id, sort_by_parameter_order=True)
        ids = connection.execute(statement, [dict(event.values) for event in self._waiting]).scalars()
        for event, row_id in zip(self._waiting, ids, strict=True):
            event.row_id = row_id
        self._waiting.clear()
