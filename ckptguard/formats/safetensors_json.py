"""JSON of safetensors headers and indexes: strict, and over at the first fault.

Manifests are read by `strict_json`, which lists every problem and bounds the number of
values; a header has millions of them by right, and one fault makes readers refuse it.
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from ckptguard.errors import FormatError


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse one JSON object strictly: no repeated key at any depth, no NaN, bounded nesting.

    Raises:
        FormatError: It is not one, and why.
    """
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except RecursionError as error:
        msg = "JSON nested too deeply"
        raise FormatError(msg) from error
    except ValueError as error:
        msg = f"not JSON: {error}"
        raise FormatError(msg) from error
    if not isinstance(value, dict):
        msg = f"a JSON {type(value).__name__} instead of an object"
        raise FormatError(msg)
    return value


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; the format forbids repeated keys, and readers disagree about which one wins."""
    value = dict(pairs)
    if len(value) < len(pairs):
        msg = f"key repeated: {_first_repeated(pairs)[:200]!r}"
        raise FormatError(msg)
    return value


def _first_repeated(pairs: Sequence[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    raise AssertionError


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is not JSON"
    raise FormatError(msg)
