"""Styled lines: what rendering makes and the edge writes, plain on a pipe, coloured on a terminal."""

import os
import shutil
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, TextIO


class Style(StrEnum):
    """What a span means; the value is rich's name for how a terminal shows it."""

    PLAIN = ""
    STRONG = "bold"
    FAINT = "dim"
    GOOD = "bold green"
    BAD = "bold red"
    DOUBT = "bold yellow"


class Span(NamedTuple):
    """Text of one style; the text is already printable."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]

MIN_WIDTH: Final = 60
MAX_WIDTH: Final = 120
"""Wider lines are harder to read; narrower terminals wrap by themselves."""


def plain(text: str) -> Line:
    """Return a line of one unstyled span."""
    return (Span(text),)


def line_text(line: Line) -> str:
    """Return the line without styles and trailing space."""
    return "".join(span.text for span in line).rstrip()


def terminal_width(stream: TextIO) -> int | None:
    """Return the width to wrap at; None for a pipe, whose lines stay whole for `grep`."""
    if not stream.isatty():
        return None
    return max(MIN_WIDTH, min(MAX_WIDTH, shutil.get_terminal_size().columns))


def is_coloured(stream: TextIO) -> bool:
    """Say whether to colour: a terminal, not a dumb one, and no `NO_COLOR` (no-color.org)."""
    return is_live(stream) and not os.environ.get("NO_COLOR")


def is_live(stream: TextIO) -> bool:
    """Say whether lines already written can be drawn anew: a terminal, and not a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def write_lines(lines: Iterable[Line], stream: TextIO) -> None:
    """Write lines, in colour where the stream is a terminal that wants it."""
    if is_coloured(stream):
        _write_coloured(lines, stream)
        return
    write_text("".join(f"{line_text(line)}\n" for line in lines), stream)


def write_text(text: str, stream: TextIO) -> None:
    """Write text; a reader that went away (`| head`) changes no exit code."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write_coloured(lines: Iterable[Line], stream: TextIO) -> None:
    from rich.console import Console  # noqa: PLC0415 - 0.1 s, and only a terminal needs it
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in lines:
        # Text, never markup: a tensor may be called "[red]".
        console.print(Text.assemble(*((span.text, str(span.style)) for span in line)))
