"""What an address asks for: filters that a form left empty are none, and the addresses of other pages."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlencode

from ckptguard.errors import InvalidRequestError

Choice = TypeVar("Choice", bound=StrEnum)


def choice(kind: type[Choice], value: str, *, field: str) -> Choice | None:
    """Return a member of an enumeration; an empty text is none.

    Raises:
        InvalidRequestError: There is no such member.
    """
    if not value:
        return None
    try:
        return kind(value)
    except ValueError as error:
        raise refusal(field=field, problem=f"{value!r} is none of {', '.join(kind)}") from error


def whole_number(value: str, *, field: str, low: int, high: int) -> int | None:
    """Return a number as people write it, `1,200` too; an empty text is none.

    Raises:
        InvalidRequestError: Not a number, or not within the bounds, both inclusive.
    """
    plain = value.strip().replace(",", "").replace("_", "")
    if not plain:
        return None
    if not (plain.isascii() and plain.isdecimal() and len(plain) <= len(str(high))):
        raise refusal(field=field, problem=f"{value!r} is not a whole number")
    if not low <= int(plain) <= high:
        raise refusal(field=field, problem=f"{value!r} is not in {low}..{high}")
    return int(plain)


def refusal(*, field: str, problem: str) -> InvalidRequestError:
    """Return the error for one field of an address."""
    return InvalidRequestError("the filters in the address cannot be used", problems=[f"/{field}: {problem}"])


def address(path: str, fields: Mapping[str, object]) -> str:
    """Return a path with those fields that say something."""
    said = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(said)}" if said else path
