"""What `adopt` writes: one object or one summary for a look, one line for each thing while watching."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.json_output import SCHEMA, write_json
from ckptguard.cli.lines import Line, Span, Style, plain, write_lines, write_text
from ckptguard.cli.plain_text import count_text, printable
from ckptguard.operations.adopt.news import News, NewsKind

_MAX_LINES: Final = 20
"""Of one kind; JSON has all of them."""
_GOOD: Final = (NewsKind.REGISTERED, NewsKind.KNOWN, NewsKind.WOULD_REGISTER)
_STYLES: Final = {
    NewsKind.REFUSED: Style.BAD,
    NewsKind.UNREADABLE: Style.BAD,
    NewsKind.TROUBLE: Style.BAD,
    NewsKind.GONE: Style.DOUBT,
    NewsKind.WAITING: Style.DOUBT,
    NewsKind.SKIPPED: Style.DOUBT,
    NewsKind.POINTER: Style.DOUBT,
}
_WORDS: Final = {NewsKind.WOULD_REGISTER: "would register", NewsKind.KNOWN: "was registered before"}


@dataclass(kw_only=True)
class OnceAnswer:
    """Collects the news of one look.

    Args:
        root: As it was named.
        is_dry: Nothing was told to the service.
    """

    root: str
    is_dry: bool
    _news: list[News] = field(default_factory=list)

    def take(self, news: News) -> None:
        """Keep one."""
        self._news.append(news)

    @property
    def exit_code(self) -> ExitCode:
        """What the process returns: refusals first, then what time may change, then an empty root."""
        kinds = {news.kind for news in self._news}
        if kinds & {NewsKind.REFUSED, NewsKind.UNREADABLE}:
            return ExitCode.UNUSABLE
        if NewsKind.WAITING in kinds:
            return ExitCode.TRY_AGAIN
        return ExitCode.OK if kinds & set(_GOOD) else ExitCode.NOTHING_THERE

    def write(self, *, is_json: bool) -> None:
        """Write the answer to standard output."""
        if is_json:
            write_json(self._value())
        else:
            write_lines(self._lines(), sys.stdout)

    def _value(self) -> dict[str, Any]:
        counts = Counter(news.kind.value for news in self._news)
        pointers = [news for news in self._news if news.kind is NewsKind.POINTER]
        return {
            "schema": SCHEMA,
            "root": self.root,
            "is_dry_run": self.is_dry,
            "counts": dict(sorted(counts.items())),
            "checkpoints": [_members(news) for news in self._news if news.kind is not NewsKind.POINTER],
            "pointers": [_members(news) for news in pointers],
        }

    def _lines(self) -> Iterator[Line]:
        for kind in NewsKind:
            news = [each for each in self._news if each.kind is kind]
            yield from map(news_line, news[:_MAX_LINES])
            if len(news) > _MAX_LINES:
                yield plain(f"... and {len(news) - _MAX_LINES:,} more {_word(kind)}")
        yield from self._summary()

    def _summary(self) -> Iterator[Line]:
        good = [news for news in self._news if news.kind in _GOOD]
        if not good:
            yield plain(f"{printable(self.root)}: no committed checkpoint")
        for run in sorted({news.run or "" for news in good}):
            of_run = [news for news in good if news.run == run]
            validated = sum(news.is_validated for news in of_run)
            counts = ", ".join(
                f"{count:,} {_word(kind)}"
                for kind in _GOOD
                if (count := sum(news.kind is kind for news in of_run))
            )
            total = count_text(len(of_run), "checkpoints")
            yield plain(f"{printable(run)}: {total}: {counts}; {validated:,} to be validated")


class LineTeller:
    """Writes each thing at once to standard output, trouble to standard error as well.

    Args:
        is_json: One object on each line, instead of a sentence.
    """

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json

    def __call__(self, news: News) -> None:
        """Write one."""
        if self._is_json:
            value = {"schema": SCHEMA, **_members(news)}
            write_text(f"{json.dumps(value, ensure_ascii=True)}\n", sys.stdout)
            return
        is_trouble = news.kind in {NewsKind.TROUBLE, NewsKind.RECOVERED}
        write_lines([news_line(news)], sys.stderr if is_trouble else sys.stdout)


def news_line(news: News) -> Line:
    """Return one thing as a line for a person."""
    where = f"{printable(news.run)} " if news.run else ""
    where += f"step {news.step} " if news.step is not None else ""
    where += f"({printable(news.path)}) " if news.path else ""
    said = [
        f"checkpoint {news.checkpoint_id}" if news.checkpoint_id is not None else "",
        "to be validated" if news.is_validated and news.kind in _GOOD else "",
        f"supersedes {', '.join(map(str, news.superseded))}" if news.superseded else "",
        printable(news.reason) if news.reason else "",
        *(f"note: {printable(note)}" for note in news.notes),
    ]
    fault = f"{news.fault} " if news.fault else ""
    rest = "; ".join(text for text in said if text)
    return (
        Span(f"{fault}{_word(news.kind)}", _STYLES.get(news.kind, Style.PLAIN)),
        Span(f" {where}".rstrip() + (f": {rest}" if rest else "")),
    )


def _word(kind: NewsKind) -> str:
    return _WORDS.get(kind, kind.value)


def _members(news: News) -> dict[str, Any]:
    """Return one thing as JSON: what it is about, and what is known of it."""
    value: dict[str, Any] = {"kind": news.kind.value, "run": news.run, "path": news.path}
    if news.kind is NewsKind.POINTER:
        return {**value, "fault": news.fault, "reason": news.reason}
    return {
        **value,
        "step": news.step,
        "checkpoint_id": news.checkpoint_id,
        "is_validated": news.is_validated,
        "reason": news.reason,
        "superseded": list(news.superseded),
        "notes": list(news.notes),
    }
