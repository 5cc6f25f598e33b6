"""A policy to and from JSON: what a service asks of a worker, every field of it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any, Final

from ckptguard.errors import FormatError
from ckptguard.model.json_fields import Fields, Problems, TooManyProblemsError
from ckptguard.model.policy import Depth, Limits, NumericsMode, Policy, Reader, StoreTimes

_Take = Callable[[Fields, str], Any]
_MAX_NAMES: Final = 10_000
"""Patterns or globals of one policy."""


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """Return all fields of a policy as JSON values.

    Guarantees: `policy_from_json(policy_to_json(policy)) == policy`.
    """
    return {
        **asdict(policy),
        "depth": policy.depth.value,
        "numerics": policy.numerics.value,
        "times": policy.times.value,
        "allowed_globals": sorted(policy.allowed_globals),
        "required_fqns": list(policy.required_fqns),
        "reader": _reader_to_json(policy.reader),
    }


def policy_from_json(value: Mapping[str, Any]) -> Policy:
    """Rebuild a policy; fields left out have their defaults.

    Args:
        value: The JSON object, parsed; left as it is.

    Raises:
        FormatError: An unknown field, or one of another type; `problems` says all that is wrong.
    """
    problems = Problems()
    taken = Fields(dict(value), "", problems)
    values: dict[str, Any] = {}
    with suppress(TooManyProblemsError):
        values = {name: take(taken, name) for name, take in _TAKE.items() if taken.has(name)}
        taken.refuse_rest()
    if problems.lines:
        msg = "no policy: " + "; ".join(problems.lines)
        raise FormatError(msg, problems=problems.lines)
    return Policy(**values)


def _reader_to_json(reader: Reader | None) -> dict[str, Any] | None:
    if reader is None:
        return None
    versions = {"torch": reader.torch, "python": reader.python}
    return {name: list(version) if version else None for name, version in versions.items()}


def _reader(outer: Fields, key: str) -> Reader | None:
    inner = outer.nullable(key, outer.fields_of)
    if inner is None:
        return None
    reader = Reader(torch=_version(inner, "torch"), python=_version(inner, "python"))
    inner.refuse_rest()
    return reader


def _version(inner: Fields, key: str) -> tuple[int, int] | None:
    version = inner.nullable(key, inner.integers)
    match version:
        case None:
            return None
        case (major, minor):
            return major, minor
    inner.problems.note(f"{inner.at}/{key}", "expected major and minor")
    return None


def _limits(outer: Fields, key: str) -> Limits:
    inner = outer.fields_of(key)
    values = {field.name: inner.count(field.name) for field in fields(Limits) if inner.has(field.name)}
    inner.refuse_rest()
    return Limits(**values)


def _names(outer: Fields, key: str) -> tuple[str, ...]:
    found = outer.members.get(key)
    if isinstance(found, list) and len(found) > _MAX_NAMES:
        outer.problems.note(f"{outer.at}/{key}", f"{len(found)} entries, limit {_MAX_NAMES}")
        del outer.members[key]
        return ()
    return outer.texts(key)


def _at_least_one(outer: Fields, key: str) -> int:
    number = outer.integer(key, instead=1)
    if number < 1:
        outer.problems.note(f"{outer.at}/{key}", f"expected 1 or more, found {number}")
    return number


_TAKE: Final[Mapping[str, _Take]] = {
    "depth": lambda taken, key: taken.choice(key, Depth, instead=Depth.LOAD),
    "numerics": lambda taken, key: taken.choice(key, NumericsMode, instead=NumericsMode.REPORT),
    "is_strict_objects": Fields.flag,
    "allowed_globals": lambda taken, key: frozenset(_names(taken, key)),
    "reader": _reader,
    "settle_s": Fields.seconds,
    "mtime_tolerance_s": Fields.seconds,
    "times": lambda taken, key: taken.choice(key, StoreTimes, instead=StoreTimes.ORIGINAL),
    "is_mtime_ignored": Fields.flag,
    "required_fqns": _names,
    "window_bytes": _at_least_one,
    "jobs": lambda taken, key: taken.nullable(key, lambda key: _at_least_one(taken, key)),
    "device": Fields.text,
    "is_direct": Fields.flag,
    "is_stock_load": Fields.flag,
    "deadline_s": lambda taken, key: taken.nullable(key, taken.seconds),
    "limits": _limits,
}
"""How each field is taken; a test holds that none of `Policy` is left out."""
