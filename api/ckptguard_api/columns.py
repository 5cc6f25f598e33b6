"""Column types that read the same from SQLite and PostgreSQL."""

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, Text
from sqlalchemy.types import TypeDecorator

Id: Final = BigInteger().with_variant(Integer, "sqlite")
"""Row ids: 64 bits everywhere; SQLite counts by itself only in a column of type INTEGER."""

ByteOrderedText: Final = Text().with_variant(Text(collation="C"), "postgresql")
"""Text sorted by its bytes, as SQLite does; PostgreSQL sorts by language else, and a prefix is no range."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC in Python; `timestamptz` in PostgreSQL, sortable text of fixed width in SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse what has no zone, and store UTC."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            msg = f"a time without a zone: {value}"
            raise ValueError(msg)
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Say that it is UTC."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
