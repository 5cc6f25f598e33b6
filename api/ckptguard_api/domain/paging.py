"""Keyset pages: where a list goes on, as a text that only this list understands.

A cursor gives no right to anything: every query is limited to its project anyway. It names the query
it belongs to, so that changed filters are a problem and not a page with holes.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from ckptguard.errors import InvalidRequestError

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
MAX_FILES_LIMIT: Final = 20_000
MAX_CURSOR_CHARS: Final = 1024
_DIGEST_CHARS: Final = 16
_MAX_ID: Final = 2**63 - 1

KeyValue = int | str | datetime
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """One page of a list.

    Args:
        items: At most the limit asked for; may be fewer, even none, where few of many rows match.
        next: Cursor of the next page; None: there is none.
    """

    items: tuple[Item, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One list with its filters.

    Args:
        name: Of the list.
        filters: JSON values.
        kinds: Types of the ordering key, in order: `int`, `str` or `datetime`.
    """

    name: str
    filters: Mapping[str, Any]
    kinds: tuple[type[KeyValue], ...]

    @property
    def digest(self) -> str:
        """Tells queries apart."""
        text = json.dumps([self.name, dict(self.filters)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


def encode_cursor(query: Query, key: Sequence[KeyValue]) -> str:
    """Return the cursor that goes on after the row with this key."""
    values = [_utc_text(value) if isinstance(value, datetime) else value for value in key]
    text = json.dumps([query.digest, *values], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(query: Query, cursor: str | None) -> tuple[KeyValue, ...] | None:
    """Return the key after which the page starts; None: at the beginning.

    Raises:
        InvalidRequestError: Not a cursor of this list with these filters.
    """
    if cursor is None:
        return None
    try:
        digest, *values = _opened(cursor)
        if digest != query.digest or len(values) != len(query.kinds):
            reason = "it belongs to another list, or to other filters"
            raise _refusal(reason)
        return tuple(_typed(value, kind) for value, kind in zip(values, query.kinds, strict=True))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        reason = "it is none that this service gave out"
        raise _refusal(reason) from error


def _opened(cursor: str) -> list[Any]:
    if len(cursor) > MAX_CURSOR_CHARS or not cursor.isascii():
        msg = "too long, or not ASCII"
        raise ValueError(msg)
    padded = cursor + "=" * (-len(cursor) % 4)
    values = json.loads(urlsafe_b64decode(padded.encode()))
    if not isinstance(values, list):
        msg = "not a list"
        raise TypeError(msg)
    return values


def _typed(value: Any, kind: type[KeyValue]) -> KeyValue:  # noqa: ANN401 - from outside
    if kind is datetime:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            msg = "a time without a zone"
            raise ValueError(msg)
        return moment.astimezone(UTC)
    if type(value) is not kind:
        msg = "a value of another type"
        raise TypeError(msg)
    if isinstance(value, int) and abs(value) > _MAX_ID:
        msg = "out of range"
        raise ValueError(msg)
    if isinstance(value, str) and "\x00" in value:  # PostgreSQL stores no NUL
        msg = "a control character"
        raise ValueError(msg)
    return value


def _utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _refusal(reason: str) -> InvalidRequestError:
    return InvalidRequestError("the cursor cannot be used", problems=[f"/cursor: {reason}"])
