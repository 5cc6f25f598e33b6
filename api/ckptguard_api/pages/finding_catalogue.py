"""What each finding code means: docs/findings.md, which comes with the wheel."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

_NAME: Final = "findings.md"
_SECTION: Final = re.compile(r"^### `([a-z_]+)`$", re.MULTILINE)
_FACT: Final = re.compile(r"^- \*\*([A-Za-z ]+):\*\* (.+)$", re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,3} ", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_STRONG: Final = re.compile(r"\*\*([^*]+)\*\*")
_EMPHASIS: Final = re.compile(r"\*([^*]+)\*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What is to be said of one code.

    Args:
        code: Stable name.
        facts: Label and text, in the order of the page: Means, Severity, Evidence, Example, Next.
    """

    code: str
    facts: tuple[tuple[str, Markup], ...]


@cache
def catalogue() -> Mapping[str, Meaning]:
    """Return what is said of each code; empty where the page was left out of the installation."""
    return {meaning.code: meaning for meaning in _meanings(_text())}


def _text() -> str:
    packaged = files("ckptguard_api") / _NAME
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    source = Path(__file__).parents[3] / "docs" / _NAME  # run from the source tree
    return source.read_text(encoding="utf-8") if source.is_file() else ""


def _meanings(text: str) -> Iterator[Meaning]:
    for head in _SECTION.finditer(text):
        following = _HEADING.search(text, head.end())
        body = text[head.end() : following.start() if following else len(text)]
        facts = tuple((fact[1], _inline(fact[2])) for fact in _FACT.finditer(body))
        yield Meaning(code=head[1], facts=facts)


def _inline(text: str) -> Markup:
    """Return one line of Markdown as HTML: code, emphasis; of links, their text."""
    escaped = str(escape(_LINK.sub(r"\1", text)))
    pieces = _CODE.split(escaped)
    plain = (_EMPHASIS.sub(r"<em>\1</em>", _STRONG.sub(r"<strong>\1</strong>", part)) for part in pieces[::2])
    code = (f"<code>{part}</code>" for part in pieces[1::2])
    shown = [part for pair in zip(plain, [*code, ""], strict=True) for part in pair]
    return Markup("".join(shown))  # noqa: S704 - our own page, escaped above
