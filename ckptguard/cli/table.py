"""Tables: aligned on a terminal, one tab between the cells in a pipe."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ckptguard.cli.lines import Line, Span, Style, plain
from ckptguard.cli.plain_text import cell_width, printable

_GAP: Final = "  "

Cell = tuple[str, Style]


def cell(text: object, style: Style = Style.PLAIN) -> Cell:
    """Return a cell; None is `-`, anything else its text made harmless."""
    return ("-" if text is None or text == "" else printable(str(text)), style)


def render_table(
    titles: Sequence[str], rows: Iterable[Sequence[Cell]], *, is_terminal: bool
) -> Iterator[Line]:
    """Yield the lines of a table.

    Args:
        titles: Of the columns; shown on a terminal only: in a pipe every line is a row.
        rows: Cells, as many as titles. On a terminal all are held, for their widths.
        is_terminal: Aligned with titles, else separated by tabs.
    """
    if not is_terminal:
        for row in rows:
            yield plain("\t".join(text for text, _ in row))
        return
    held = [tuple(row) for row in rows]
    widths = [
        max(cell_width(title), *(cell_width(row[column][0]) for row in held)) if held else cell_width(title)
        for column, title in enumerate(titles)
    ]
    yield _aligned([(title, Style.STRONG) for title in titles], widths)
    for row in held:
        yield _aligned(row, widths)


def _aligned(row: Sequence[Cell], widths: Sequence[int]) -> Line:
    spans: list[Span] = []
    for (text, style), width in zip(row, widths, strict=True):
        spans += (Span(text, style), Span(" " * (width - cell_width(text)) + _GAP))
    return tuple(spans[:-1])
