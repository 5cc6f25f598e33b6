"""Texts that people give for the audit."""

import re
from collections.abc import Iterator
from typing import Final

from ckptguard.errors import InvalidRequestError

MAX_REASON_CHARS: Final = 1000
# C0 without tab and line ends, DEL, C1, line and paragraph separators, and what turns text around.
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LINE_ENDS: Final = re.compile(r"[\t\r\n]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def text_problems(text: str, *, at: str, max_chars: int) -> Iterator[str]:
    """Yield why a text of several lines cannot be kept."""
    if len(text) > max_chars:
        yield f"{at}: {len(text)} characters, at most {max_chars}"
    if _FORBIDDEN.search(text):
        yield f"{at}: control character in {text[:80]!r}"
    if _SURROGATE.search(text):
        yield f"{at}: lone surrogate, not text"


def checked_reason(reason: str) -> str:
    """Return the reason of a person, without space around it.

    Raises:
        InvalidRequestError: Empty, longer than 1000 characters, or with control characters: it stands in
            the audit, in one line of a log and on a terminal.
    """
    stripped = reason.strip(" ")
    problems = list(text_problems(stripped, at="/reason", max_chars=MAX_REASON_CHARS))
    if not stripped:
        problems.append("/reason: empty; say why")
    if _LINE_ENDS.search(stripped):
        problems.append(f"/reason: control character in {stripped[:80]!r}")
    if problems:
        msg = "the reason cannot be kept"
        raise InvalidRequestError(msg, problems=problems)
    return stripped
