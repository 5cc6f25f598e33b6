"""JSON values to frozen dataclasses and back: what a class declares is what an answer must hold."""

import dataclasses
import functools
import json
import math
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from ckptguard.errors import ServiceError

T = TypeVar("T")
_MAX_INTEGER: Final = 2**63
_MAX_SHOWN: Final = 60


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - a JSON value
    """Parse the body of an answer.

    Raises:
        ServiceError: It is no JSON, or uses NaN, numbers or depths that no answer has.
    """
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        msg = f"the service answered something that is no JSON: {type(error).__name__}"
        raise ServiceError(msg) from error


def _refuse_constant(name: str) -> Any:  # noqa: ANN401 - json's signature
    raise ValueError(name)


def decode(kind: type[T], value: Any, *, at: str) -> T:  # noqa: ANN401 - a JSON value
    """Turn a JSON value into a value of `kind`.

    Fields that `kind` does not declare are ignored; a field with a default may be missing.

    Args:
        kind: A dataclass, an enum, a plain type, or `X | None`, `tuple[X, ...]`, `Mapping[str, X]` of these.
        value: What `parse_json` gave.
        at: Where it is in the answer, for the error.

    Raises:
        ServiceError: Something is missing or of another type: the service speaks another version.
    """
    found: T = _decode(kind, value, at=at)
    return found


def _decode(kind: Any, value: Any, *, at: str) -> Any:  # noqa: ANN401 - a type, a JSON value, what it means
    if dataclasses.is_dataclass(kind):
        return _decode_record(kind, value, at=at)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        inner = next(argument for argument in arguments if argument is not type(None))
        return None if value is None else _decode(inner, value, at=at)
    if origin is tuple:
        items = _require(list, value, at=at)
        return tuple(_decode(arguments[0], item, at=f"{at}[{number}]") for number, item in enumerate(items))
    if origin is Mapping:
        members = _require(dict, value, at=at)
        return {name: _decode(arguments[1], member, at=f"{at}.{name}") for name, member in members.items()}
    return _decode_plain(kind, value, at=at)


@functools.cache
def _fields_of(kind: Any) -> tuple[tuple[str, Any, bool], ...]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind)
    return tuple(
        (
            entry.name,
            hints[entry.name],
            entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING,
        )
        for entry in dataclasses.fields(kind)
    )


def _decode_record(kind: Any, value: Any, *, at: str) -> Any:  # noqa: ANN401 - a type and a JSON value
    members = _require(dict, value, at=at)
    found = {}
    for name, hint, is_required in _fields_of(kind):
        if name in members:
            found[name] = _decode(hint, members[name], at=f"{at}.{name}")
        elif is_required:
            _refuse(f"{at} has no {name!r}")
    try:
        return kind(**found)
    except ValueError as error:
        _refuse(f"{at}: {error}", cause=error)


def _decode_plain(kind: Any, value: Any, *, at: str) -> Any:  # noqa: ANN401 - a type and a JSON value
    if kind in {Any, object}:
        return value
    if kind is datetime:
        return _decode_time(value, at=at)
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_INTEGER:
        return float(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(_require(str, value, at=at))
        except ValueError as error:
            _refuse(f"{at} is {_shown(value)}, which this version does not know", cause=error)
    return _require(kind, value, at=at)


def _decode_time(value: Any, *, at: str) -> datetime:  # noqa: ANN401 - a JSON value
    try:
        time = datetime.fromisoformat(_require(str, value, at=at))
        if time.tzinfo is None:
            _refuse(f"{at} is a time without a zone: {_shown(value)}")
        return time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        _refuse(f"{at} is no time: {_shown(value)}", cause=error)


def _require(kind: Any, value: Any, *, at: str) -> Any:  # noqa: ANN401 - a type and a JSON value
    is_right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if is_right and kind is int:
        is_right = abs(value) < _MAX_INTEGER
    if is_right and kind is float:
        is_right = math.isfinite(value)
    if not is_right:
        _refuse(f"{at} should be {kind.__name__}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:  # noqa: ANN401 - a JSON value
    return (
        f"{type(value).__name__} {str(value)[:_MAX_SHOWN]!r}"
        if isinstance(value, str)
        else type(value).__name__
    )


def _refuse(problem: str, *, cause: Exception | None = None) -> NoReturn:
    msg = f"the service speaks another version than this client: {problem}"
    raise ServiceError(msg) from cause


def encode(value: Any) -> Any:  # noqa: ANN401 - any answer, and a JSON value
    """Return an answer as JSON values; `decode` of the same class gives it back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: encode(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Mapping):
        return {str(name): encode(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


def time_text(time: datetime) -> str:
    """Return a time as the API writes it: RFC 3339, UTC, microseconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
