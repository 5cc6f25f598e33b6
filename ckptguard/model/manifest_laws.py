"""The laws of a manifest, one function each: values in, problems out.

A problem is one line, `POINTER: what is wrong`, whose pointer (RFC 6901) is relative
to the value that the function was given. The constructors of `ckptguard.model.manifest`
raise what these functions list; the parser puts the place in the file before it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

MAX_INTEGER: Final = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly (RFC 7493, required by RFC 8785)."""
MAX_PATH_BYTES: Final = 1024
"""Longest path, in UTF-8; object stores take no longer key."""
MAX_SEGMENT_BYTES: Final = 255
"""Longest name between two slashes; file systems take no longer one."""
MAX_LABEL_CHARS: Final = 256

_NAME: Final = r"(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f]+"
PATH_PATTERN: Final = rf"(?![A-Za-z]:){_NAME}(?:/{_NAME})*"
"""A contained path; also stands in the JSON Schema, so it is plain ECMA 262."""
_PATH: Final = re.compile(PATH_PATTERN)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_MANIFEST_NAME: Final = re.compile(r"(?:__\d{1,9}\.)?ckptguard\.manifest\.json")


def is_manifest_path(path: str) -> bool:
    """Say whether this path is where a writer leaves a manifest, in any folder."""
    return _MANIFEST_NAME.fullmatch(path.rpartition("/")[2]) is not None


def path_problems(path: str, *, at: str) -> Iterator[str]:
    """Yield why a path is not contained in its folder on every system that may read it.

    Relative, `/`-separated; no `.`, `..` or empty segment. Backslash and drive letters
    are refused, because another system would take them for a separator or a root.
    """
    is_contained = _PATH.fullmatch(path) is not None
    if is_contained and len(path) <= MAX_SEGMENT_BYTES and path.isascii():
        return  # nearly every path; the rest of the laws cannot fail
    if not is_contained:
        yield f"{at}: {_why_not_contained(path)}: {path[:80]!r}"
    yield from _encoding_problems(path, at=at)
    if len(path) * 4 <= MAX_SEGMENT_BYTES:
        return
    raw = path.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_PATH_BYTES:
        yield f"{at}: {len(raw)} bytes long, at most {MAX_PATH_BYTES}"
    if max(map(len, raw.split(b"/"))) > MAX_SEGMENT_BYTES:
        yield f"{at}: a name longer than {MAX_SEGMENT_BYTES} bytes"


def _why_not_contained(path: str) -> str:
    if not path:
        return "empty path"
    if path.startswith("/") or re.match("[A-Za-z]:", path):
        return "not relative"
    if "\\" in path:
        return "backslash in a path"
    if _CONTROL.search(path):
        return "control character in a path"
    return "empty, '.' or '..' segment"


def label_problems(text: str, *, at: str) -> Iterator[str]:
    """Yield why a text cannot serve as a name: empty, longer than 256 characters, unprintable."""
    if not 1 <= len(text) <= MAX_LABEL_CHARS:
        yield f"{at}: {len(text)} characters, not 1 to {MAX_LABEL_CHARS}"
    if _CONTROL.search(text):
        yield f"{at}: control character in {text[:80]!r}"
    yield from _encoding_problems(text, at=at)


def _encoding_problems(text: str, *, at: str) -> Iterator[str]:
    if not text.isascii() and _SURROGATE.search(text):
        yield f"{at}: lone surrogate, not text: {text[:80]!r}"


def integer_problems(value: int, *, at: str, minimum: int = 0) -> Iterator[str]:
    """Yield why a number is not an exact integer of at least `minimum`; a bool is none."""
    if type(value) is not int:
        yield f"{at}: not an integer: {value!r}"
    elif not minimum <= value <= MAX_INTEGER:
        yield f"{at}: not in {minimum}..{MAX_INTEGER}"


def time_problems(moment: datetime, *, at: str) -> Iterator[str]:
    """Yield why a moment is not aware UTC."""
    if moment.utcoffset() != timedelta(0):
        yield f"{at}: not UTC: {moment.isoformat()}"


def json_problems(value: object, *, at: str) -> Iterator[str]:
    """Yield why a free value would not survive a trip through JSON unchanged."""
    match value:
        case None | bool():
            return
        case str():
            yield from _encoding_problems(value, at=at)
        case int():
            yield from integer_problems(value, at=at, minimum=-MAX_INTEGER)
        case float():
            if not math.isfinite(value):
                yield f"{at}: not a finite number"
        case list():
            for index, element in enumerate(value):
                yield from json_problems(element, at=f"{at}/{index}")
        case dict():
            yield from _object_problems(value, at=at)
        case _:
            yield f"{at}: not a JSON value: {type(value).__name__}"


def _object_problems(members: dict[object, object], *, at: str) -> Iterator[str]:
    for key, element in members.items():
        if not isinstance(key, str):
            yield f"{at}: key is not text: {key!r}"
            continue
        yield from _encoding_problems(key, at=f"{at}/")
        yield from json_problems(element, at=f"{at}/{escape_pointer(key)}")


def escape_pointer(key: str) -> str:
    """Return one reference token of a JSON pointer, printable and at most 80 characters."""
    token = key[:80].replace("~", "~0").replace("/", "~1")
    return token if token.isprintable() else ascii(token)[1:-1]


def repetition_problems(paths: Iterable[str], *, at: str) -> list[str]:
    """List every path that stands more than once."""
    repeated = sorted((path, count) for path, count in Counter(paths).items() if count > 1)
    return [f"{at}: listed {count} times: {path!r}" for path, count in repeated]
