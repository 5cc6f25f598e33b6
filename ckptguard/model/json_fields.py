"""The fields of a JSON object, taken one by one; each ill-typed one noted, none trusted.

A lawful placeholder stands in for what is missing or ill-typed, so that the caller can
go on and find every other problem. Once a problem is noted, no value may be used.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

from ckptguard.errors import ManifestFormatError
from ckptguard.model.checksum import Algorithm, Checksum, parse_checksum
from ckptguard.model.manifest_laws import escape_pointer

NO_CHECKSUM: Final = Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32)
PLACEHOLDER: Final = "?"
"""Stands in for a text that is missing or none; a lawful name and path."""
MAX_PROBLEMS: Final = 1000
"""Nobody reads more, and a hostile text of a few MB has millions: each would cost memory and time."""
_ABSENT: Final = object()
_NO_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Built = TypeVar("_Built")
_Choice = TypeVar("_Choice", bound=StrEnum)


class TooManyProblemsError(Exception):
    """So much is wrong that reading stopped; `Problems.lines` says what was found until then."""


class Problems:
    """Problems in the order they were found, `POINTER: what is wrong`; at most `MAX_PROBLEMS`."""

    def __init__(self, of_json: tuple[str, ...] = ()) -> None:
        self.lines = list(of_json[:MAX_PROBLEMS])
        self._faulty_places = frozenset(line.partition(": ")[0] for line in of_json)

    def note(self, at: str, message: str) -> None:
        """Add one, unless the JSON itself is already said to be faulty there.

        Raises:
            TooManyProblemsError: It is the last that there is room for.
        """
        if at not in self._faulty_places:
            self.extend([f"{at}: {message}"])

    def extend(self, lines: Iterable[str]) -> None:
        """Add lines that are complete.

        Raises:
            TooManyProblemsError: There is no room for more.
        """
        self.lines.extend(islice(lines, MAX_PROBLEMS - len(self.lines)))
        if len(self.lines) >= MAX_PROBLEMS:
            raise TooManyProblemsError

    def build(self, make: Callable[..., _Built], at: str, **fields: object) -> _Built | None:
        """Call a constructor; note each of its problems with its place, and return None then."""
        try:
            return make(**fields)
        except ManifestFormatError as error:
            self.extend(f"{at}{problem}" for problem in error.problems)
            return None


@dataclass(slots=True)
class Fields:
    """One JSON object, emptied field by field; what is left is unknown to this version.

    Args:
        members: Not yet taken.
        at: JSON pointer of the object.
        problems: Where to note.
        is_void: There is no such object, which is noted already: its fields are not missed.
    """

    members: dict[str, Any]
    at: str
    problems: Problems
    is_void: bool = False

    def has(self, key: str) -> bool:
        """Say whether the field is there and not taken."""
        return key in self.members

    def text(self, key: str, *, instead: str = PLACEHOLDER) -> str:
        """Take a required text."""
        value = self._take(key)
        return value if isinstance(value, str) else self._wrong(key, "text", value, instead)

    def integer(self, key: str, *, instead: int = 0) -> int:
        """Take a required integer; neither a bool nor `1.0` is one."""
        value = self._take(key)
        return value if type(value) is int else self._wrong(key, "an integer", value, instead)

    def count(self, key: str) -> int:
        """Take a required integer that is not negative."""
        value = self._take(key)
        is_count = type(value) is int and value >= 0
        return value if is_count else self._wrong(key, "an integer of 0 or more", value, 0)

    def number(self, key: str) -> float:
        """Take a required number."""
        value = self._take(key)
        return value if type(value) in (int, float) else self._wrong(key, "a number", value, 0)

    def seconds(self, key: str) -> float:
        """Take a required time span: a finite number that is not negative."""
        value = self._take(key)
        is_span = type(value) in (int, float) and math.isfinite(value) and value >= 0
        return float(value) if is_span else self._wrong(key, "a number of seconds", value, 0.0)

    def flag(self, key: str) -> bool:
        """Take a required true or false."""
        value = self._take(key)
        return value if isinstance(value, bool) else self._wrong(key, "true or false", value, False)  # noqa: FBT003

    def moment(self, key: str) -> datetime:
        """Take a required ISO 8601 time with its offset."""
        value = self._take(key)
        moment = _moment(value) if isinstance(value, str) else None
        return moment or self._wrong(key, "a time with its offset", value, _NO_MOMENT)

    def nullable(self, key: str, take: Callable[[str], _Built]) -> _Built | None:
        """Take a field that must be there and may be null; `take` is another method of these fields."""
        if self.has(key) and self.members[key] is None:
            del self.members[key]
            return None
        return take(key)

    def refuse_rest(self) -> None:
        """Note every field that nobody took: this version does not know it."""
        for name in self.members:
            self.problems.note(f"{self.at}/{escape_pointer(name)}", "unknown field")

    def choice(self, key: str, kind: type[_Choice], *, instead: _Choice) -> _Choice:
        """Take a required text that is one of an enumeration's."""
        value = self._take(key)
        chosen = _by_text(kind).get(value) if isinstance(value, str) else None
        return chosen or self._wrong(key, f"one of {', '.join(kind)}", value, instead)

    def checksum(self, key: str) -> Checksum:
        """Take a required `algorithm:hex`."""
        value = self._take(key)
        try:
            return (
                parse_checksum(value)
                if isinstance(value, str)
                else self._wrong(key, "text", value, NO_CHECKSUM)
            )
        except ValueError as error:
            self.problems.note(f"{self.at}/{key}", str(error))
            return NO_CHECKSUM

    def array(self, key: str) -> list[Any]:
        """Take a required array."""
        value = self._take(key)
        return value if isinstance(value, list) else self._wrong(key, "an array", value, [])

    def fields_of(self, key: str) -> "Fields":
        """Take a required object."""
        return self.element(key, self._take(key))

    def objects(self, key: str) -> Iterator["Fields"]:
        """Take a required array of objects."""
        for index, value in enumerate(self.array(key)):
            yield self.element(f"{key}/{index}", value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a required array of texts."""
        return tuple(
            value if isinstance(value, str) else self._wrong(f"{key}/{index}", "text", value, f"?{index}")
            for index, value in enumerate(self.array(key))
        )

    def integers(self, key: str) -> tuple[int, ...]:
        """Take a required array of integers."""
        return tuple(
            value if type(value) is int else self._wrong(f"{key}/{index}", "an integer", value, 0)
            for index, value in enumerate(self.array(key))
        )

    def text_by_name(self, key: str) -> dict[str, str]:
        """Take a required object of texts."""
        inner = self.fields_of(key)
        return {name: inner.text(name) for name in tuple(inner.members)}

    def element(self, place: str, value: Any) -> "Fields":  # noqa: ANN401 - a JSON value
        """Return the fields of a value below this one; those of an empty object if it is none."""
        if isinstance(value, dict):
            return Fields(dict(value), f"{self.at}/{place}", self.problems)
        self._wrong(place, "an object", value, None)
        return Fields({}, f"{self.at}/{place}", self.problems, is_void=True)

    def _take(self, key: str) -> Any:  # noqa: ANN401 - a JSON value
        return self.members.pop(key, _ABSENT)

    def _wrong(self, place: str, wanted: str, value: object, instead: _Built) -> _Built:
        if not self.is_void:
            found = "missing" if value is _ABSENT else f"expected {wanted}, found {describe(value)}"
            self.problems.note(f"{self.at}/{place}", found)
        return instead


@cache
def _by_text(kind: type[_Choice]) -> dict[str, _Choice]:
    return {member.value: member for member in kind}


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def describe(value: object) -> str:
    """Say briefly what a JSON value is, e.g. `null`, `true`, `an array`, `"text"`."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return repr(value)[:80]


def pointer_of(*keys: str) -> str:
    """Return the JSON pointer of nested keys."""
    return "".join(f"/{escape_pointer(key)}" for key in keys)
