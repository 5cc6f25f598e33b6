"""Pages of long lists whose cost is bounded, whatever the filters pick.

An index gives candidates in the order of the list; filters that it does not serve look at no more than
`WINDOW_ROWS` of them a page. A page may so be short, even empty, and still have a next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Row, Select, TextClause, literal, tuple_

from ckptguard_api.database import Transaction
from ckptguard_api.domain.paging import KeyValue, Page, Query, decode_cursor, encode_cursor

WINDOW_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One list, newest first.

    Args:
        query: Names it, for cursors.
        rows: What the list shows, of one table and what is joined to it; without conditions and order.
        served: Conditions that an index in the order of the list serves.
        rest: All other conditions.
        order: Columns of that table, most significant first; together unique; all descending.
        is_few: `served` picks few rows: they are sorted, so that no planner walks the order instead.
    """

    query: Query
    rows: Select[Any]
    served: Sequence[ColumnElement[bool] | TextClause]
    rest: Sequence[ColumnElement[bool]] = field(default=())
    order: Sequence[Column[Any]]
    is_few: bool = False


def read_page(tx: Transaction, listing: Listing, *, cursor: str | None, limit: int) -> Page[Row[Any]]:
    """Read one page.

    Raises:
        InvalidRequestError: The cursor belongs to another list or to other filters.

    Cost: one page; with `rest`, at most `WINDOW_ROWS` candidates.
    """
    after = decode_cursor(listing.query, cursor)
    key = tuple_(*listing.order)
    conditions = [*listing.served]
    if after is not None:
        conditions.append(key < _bound(listing, after))
    end = _end_of_window(tx, listing, conditions) if listing.rest else None
    if end is not None:
        conditions.append(key >= _bound(listing, end))
    found = listing.rows.where(*conditions, *listing.rest)
    rows = tx.execute(_ordered(found, listing).limit(limit + 1)).all()
    if len(rows) > limit:
        last = [getattr(rows[limit - 1], column.name) for column in listing.order]
        return Page(items=tuple(rows[:limit]), next=encode_cursor(listing.query, last))
    return Page(items=tuple(rows), next=None if end is None else encode_cursor(listing.query, end))


def _end_of_window(
    tx: Transaction, listing: Listing, conditions: Sequence[ColumnElement[bool] | TextClause]
) -> tuple[KeyValue, ...] | None:
    keys = listing.rows.with_only_columns(*listing.order, maintain_column_froms=False).where(*conditions)
    row = tx.execute(_ordered(keys, listing).offset(WINDOW_ROWS - 1).limit(1)).one_or_none()
    return None if row is None else tuple(row)


def _ordered(statement: Select[Any], listing: Listing) -> Select[Any]:
    first, *others = listing.order
    # An expression is in no index: the planner must take the one that serves the conditions.
    leading = first + 0 if listing.is_few else first
    return statement.order_by(leading.desc(), *(column.desc() for column in others))


def _bound(listing: Listing, key: Sequence[KeyValue]) -> Any:  # noqa: ANN401 - a tuple of SQL
    return tuple_(*(literal(value, column.type) for value, column in zip(key, listing.order, strict=True)))
