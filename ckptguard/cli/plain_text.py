"""Text for a terminal: hostile names made harmless, numbers with units, wrapping by cells."""

import unicodedata
from collections.abc import Iterator
from typing import Final

_SI_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_SI_STEP: Final = 1000
_MAX_CHARS: Final = 400


def printable(text: str, *, max_chars: int = _MAX_CHARS) -> str:
    r"""Return text that a terminal only ever shows, never obeys.

    Control, formatting (bidirectional marks too) and undecodable characters become
    `\xNN` or `\uNNNN`; beyond `max_chars` the middle is left out.
    """
    harmless = "".join(ch if ch.isprintable() else _escape(ch) for ch in text)
    if len(harmless) <= max_chars:
        return harmless
    head = (max_chars - 5) // 2
    return f"{harmless[:head]} ... {harmless[len(harmless) - (max_chars - 5 - head) :]}"


def _escape(character: str) -> str:
    point = ord(character)
    if point <= 0xFF:  # noqa: PLR2004 - what two hex digits hold
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"  # noqa: PLR2004 - four digits


def bytes_text(count: float) -> str:
    """Return a length in SI units, e.g. `201.3 MB`."""
    value, unit = float(count), _SI_UNITS[0]
    for unit in _SI_UNITS:  # noqa: B007 - the unit that fits is used below
        if value < _SI_STEP:
            break
        value /= _SI_STEP
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def rate_text(count: float, seconds: float) -> str:
    """Return bytes per second, or nothing where no time was measured."""
    return f"{bytes_text(count / seconds)}/s" if count and seconds > 0 else ""


def seconds_text(seconds: float) -> str:
    """Return a duration: `0.12 s`, `3 min 07 s`, `2 h 05 min`."""
    if seconds < 100:  # noqa: PLR2004 - two digits of seconds read best as seconds
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - minutes of an hour
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count_text(count: int, noun: str) -> str:
    """Return `1,204 items`; bytes with their unit; one of a kind loses its plural `s`."""
    if noun == "bytes":
        return bytes_text(count)
    return f"{count:,} {noun.removesuffix('s') if count == 1 else noun.replace('_', ' ')}"


def cell_width(text: str) -> int:
    """Return the terminal cells that text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap_cells(text: str, width: int | None) -> Iterator[str]:
    """Yield lines of at most `width` cells, broken at spaces where there are any.

    Args:
        text: Printable text.
        width: Cells in a line; None: one line, however long.
    """
    if width is None or cell_width(text) <= width:
        yield text
        return
    line = ""
    for word in text.split(" "):
        if line and cell_width(line) + 1 + cell_width(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            yield line
        *full, line = _cut(word, width)
        yield from full
    yield line


def _cut(word: str, width: int) -> list[str]:
    pieces, piece, used = [], "", 0
    for character in word:
        cells = _cells(character)
        if used + cells > width:
            pieces.append(piece)
            piece, used = "", 0
        piece, used = piece + character, used + cells
    return [*pieces, piece]
