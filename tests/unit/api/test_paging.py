"""A cursor goes on exactly where its list stopped, and is of use for nothing else."""

import json
from base64 import urlsafe_b64encode
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptguard.errors import InvalidRequestError
from ckptguard_api.domain.paging import KeyValue, Query, decode_cursor, encode_cursor

QUERY = Query(name="checkpoints", filters={"verdict": "VALID"}, kinds=(datetime, int))
NOW = datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=UTC)


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.text().filter(lambda t: "\0" not in t),
)
def test_a_cursor_gives_back_its_key(moment: datetime, number: int, name: str) -> None:
    query = Query(name="q", filters={}, kinds=(datetime, int, str))
    key: tuple[KeyValue, ...] = (moment, number, name[:50])
    if not name.isascii():
        key = (moment, number, "")
    assert decode_cursor(query, encode_cursor(query, key)) == key


def test_no_cursor_is_the_beginning() -> None:
    assert decode_cursor(QUERY, None) is None


@pytest.mark.parametrize(
    "other",
    [
        Query(name="runs", filters=QUERY.filters, kinds=QUERY.kinds),
        Query(name=QUERY.name, filters={"verdict": "INVALID"}, kinds=QUERY.kinds),
        Query(name=QUERY.name, filters={}, kinds=QUERY.kinds),
    ],
)
def test_a_cursor_of_another_query_is_a_problem(other: Query) -> None:
    with pytest.raises(InvalidRequestError, match="cursor") as caught:
        decode_cursor(QUERY, encode_cursor(other, (NOW, 1)))
    assert caught.value.problems == ("/cursor: it belongs to another list, or to other filters",)


def _cursor(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "no base 64!",
        "x" * 5000,
        "ünïcode",
        _cursor({}),
        _cursor([]),
        _cursor(None),
        _cursor([QUERY.digest, NOW.isoformat()]),
        _cursor([QUERY.digest, NOW.isoformat(), "1"]),
        _cursor([QUERY.digest, NOW.isoformat(), True]),
        _cursor([QUERY.digest, NOW.isoformat(), 1.0]),
        _cursor([QUERY.digest, NOW.isoformat(), 2**70]),
        _cursor([QUERY.digest, "2026-11-29T12:00:00", 1]),
        _cursor([QUERY.digest, "0001-01-01T00:00:00+20:00", 1]),
        _cursor([QUERY.digest, 5, 1]),
        "W1tbW1tb" * 100,
    ],
)
def test_what_is_no_cursor_is_a_problem_and_nothing_else(cursor: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_cursor(QUERY, cursor)
    assert caught.value.problems


@given(st.text(max_size=300))
def test_any_text_is_a_problem_and_nothing_else(cursor: str) -> None:
    with pytest.raises(InvalidRequestError):
        decode_cursor(QUERY, cursor)
