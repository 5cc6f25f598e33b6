"""JSON from an untrusted source: bounded before it is parsed, nothing silently repaired.

Python's `json` keeps the last of two equal keys, reads `NaN`, turns `1e999` into
infinity and nests as deep as the stack. Here each of these is a problem with its place.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Final

from ckptguard.errors import LimitExceededError, ManifestFormatError
from ckptguard.model.json_fields import MAX_PROBLEMS
from ckptguard.model.manifest_laws import MAX_INTEGER, escape_pointer

_MAX_NUMBER_CHARS: Final = 64
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_STRING: Final = re.compile(rb'"[^"]*"')
_NEITHER_QUOTE_NOR_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{},"'))
_OPENING: Final = frozenset(b"[{")
_CLOSING: Final = frozenset(b"]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """Bounds that are held before anything is built.

    Args:
        max_bytes: Length of the text.
        max_depth: Arrays and objects inside each other.
        max_values: Members and elements, all together.
    """

    max_bytes: int
    max_depth: int
    max_values: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictJson:
    """A parsed text and what is wrong with it.

    Args:
        value: Ordinary JSON values; None stands for each refused number, the last of
            repeated keys is kept.
        problems: `POINTER: what is wrong` (RFC 6901), in the order of the text.
    """

    value: Any
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _RefusedNumber:
    reason: str


@cache
def _refused(reason: str) -> _RefusedNumber:
    """Return the one mark of a reason: a hostile text holds millions of them."""
    return _RefusedNumber(reason)


class _RepeatingObject(dict[str, Any]):
    """An object in which keys stand twice."""

    repeated: tuple[str, ...] = ()


@dataclass(slots=True)
class _Hooks:
    """What the parser calls; remembers whether the tree must be searched for faults at all."""

    is_clean: bool = field(default=True)

    def members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self.is_clean = False
        marked = _RepeatingObject(members)
        counts = Counter(key for key, _ in pairs)
        marked.repeated = tuple(key for key, count in counts.items() if count > 1)
        return marked

    def integer(self, text: str) -> int | _RefusedNumber:
        if len(text) <= _MAX_NUMBER_CHARS and abs(number := int(text)) <= MAX_INTEGER:
            return number
        return self._refuse(f"integer beyond {MAX_INTEGER}")

    def decimal(self, text: str) -> float | _RefusedNumber:
        if len(text) <= _MAX_NUMBER_CHARS and math.isfinite(number := float(text)):
            return number
        return self._refuse("number too large or too long")

    def constant(self, text: str) -> _RefusedNumber:
        return self._refuse(f"{text} is not JSON")

    def _refuse(self, reason: str) -> _RefusedNumber:
        self.is_clean = False
        return _refused(reason)


def parse_strict_json(data: bytes, limits: JsonLimits) -> StrictJson:
    """Parse a whole text.

    Args:
        data: UTF-8 without byte order mark.
        limits: Bounds.

    Raises:
        LimitExceededError: Longer, deeper or more values than the limits allow.
        ManifestFormatError: Not UTF-8, not JSON, or so many problems that reading stopped: there is no
            tree to go on with.
    """
    if len(data) > limits.max_bytes:
        msg = f"{len(data)} bytes of JSON, limit {limits.max_bytes}"
        raise LimitExceededError(msg)
    _bound_structure(data, limits)
    hooks = _Hooks()
    decoder = json.JSONDecoder(
        object_pairs_hook=hooks.members,
        parse_int=hooks.integer,
        parse_float=hooks.decimal,
        parse_constant=hooks.constant,
    )
    try:
        value = decoder.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ManifestFormatError([f": not UTF-8 at byte {error.start}"]) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise ManifestFormatError([f": not JSON at {place}: {error.msg}"]) from error
    if hooks.is_clean:
        return StrictJson(value=value)
    problems = tuple(islice(_faults(value, ""), MAX_PROBLEMS))
    if len(problems) == MAX_PROBLEMS:
        raise ManifestFormatError(problems)
    return StrictJson(value=_without_marks(value), problems=problems)


def _bound_structure(data: bytes, limits: JsonLimits) -> None:
    structure = _structure(data)
    if len(structure) > 2 * limits.max_values:  # each value costs a comma or at most two brackets
        msg = f"more than {limits.max_values} JSON values"
        raise LimitExceededError(msg)
    depth = deepest = 0
    for byte in structure.translate(None, b","):
        depth += (byte in _OPENING) - (byte in _CLOSING)
        deepest = max(deepest, depth)
    if deepest > limits.max_depth:
        msg = f"JSON nested {deepest} deep, limit {limits.max_depth}"
        raise LimitExceededError(msg)


def _structure(data: bytes) -> bytes:
    """Return the brackets and commas that stand outside of strings."""
    without_escapes = _ESCAPE.sub(b"", data) if b"\\" in data else data
    kept = without_escapes.translate(None, _NEITHER_QUOTE_NOR_STRUCTURE)
    # Nearly every string is empty by now; adjacent quotes may go, nothing stands between them.
    return _STRING.sub(b"", kept.replace(b'""', b"")).replace(b'"', b"")


def _faults(value: object, at: str) -> Iterator[str]:
    match value:
        case _RefusedNumber():
            yield f"{at}: {value.reason}"
        case list():
            for index, element in enumerate(value):
                yield from _faults(element, f"{at}/{index}")
        case dict():
            for key in getattr(value, "repeated", ()):
                yield f"{at}/{escape_pointer(key)}: key stands more than once"
            for key, member in value.items():
                yield from _faults(member, f"{at}/{escape_pointer(key)}")


def _without_marks(value: object) -> object:
    match value:
        case _RefusedNumber():
            return None
        case list():
            return [_without_marks(element) for element in value]
        case dict():
            return {key: _without_marks(member) for key, member in value.items()}
        case _:
            return value
