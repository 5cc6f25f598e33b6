"""One request and what its answer means: built and read without a socket."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from ckptguard.client.decode import decode

T = TypeVar("T")
Query = str | int | float | bool | None
MAX_HOLD_S: Final = 600.0
"""Longest wait that the service grants to one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request of API v1 (docs/service.md).

    Args:
        method: HTTP's.
        path: Below the service's address, quoted.
        read: Turns the answer's JSON into a value; raises ServiceError.
        query: None is left out.
        body: Sent as JSON; None: no body.
        is_repeatable: The same request twice does no more than once, so it may be tried again.
        hold_s: The service may wait this long before it answers; sent as `wait_s`.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, Query] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    is_repeatable: bool = True
    hold_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list.

    Args:
        items: In the list's order.
        next: Cursor of the next page; None: this is the last.
    """

    items: tuple[T, ...]
    next: str | None = None


def get(path: str, kind: type[T], /, **query: Query) -> Call[T]:
    """Return a call that reads one value."""
    return Call(method="GET", path=path, read=_reader(kind), query=query)


def post(path: str, kind: type[T], body: Mapping[str, Any], *, is_repeatable: bool = True) -> Call[T]:
    """Return a call that changes something; members of the body that are None are left out."""
    return Call(
        method="POST", path=path, read=_reader(kind), body=without_none(body), is_repeatable=is_repeatable
    )


def get_page(path: str, kind: type[T], /, **query: Query) -> Call[Page[T]]:
    """Return a call that reads one page of a list."""
    return Call(method="GET", path=path, read=_page_reader(kind), query=query)


def page_after(call: Call[Page[T]], cursor: str) -> Call[Page[T]]:
    """Return the call for the page behind a cursor."""
    return replace(call, query={**call.query, "cursor": cursor})


def without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was not given."""
    return {name: value for name, value in members.items() if value is not None}


def segment(name: str | int) -> str:
    """Return one segment of a path: a run may be called `a/b`, or `..`."""
    quoted = quote(str(name), safe="")
    # A dot needs no quoting, but clients and proxies resolve such segments before they send them.
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


def _reader(kind: type[T]) -> Callable[[Any], T]:
    def read(value: Any) -> T:  # noqa: ANN401 - a JSON value
        return decode(kind, value, at="answer")

    return read


def _page_reader(kind: type[T]) -> Callable[[Any], Page[T]]:
    def read(value: Any) -> Page[T]:  # noqa: ANN401 - a JSON value
        raw = decode(_RawPage, value, at="answer")
        items = (decode(kind, item, at=f"items[{number}]") for number, item in enumerate(raw.items))
        return Page(items=tuple(items), next=raw.next)

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class _RawPage:
    items: tuple[Any, ...]
    next: str | None = None


def no_answer(value: Any) -> None:  # noqa: ANN401 - a JSON value
    """Read the answer of a call that says nothing but that it was done."""
    del value
