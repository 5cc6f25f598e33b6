"""Lists as files for spreadsheets, which must take no name for a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

from starlette.responses import Response

MAX_ROWS: Final = 10_000
"""Of one file."""

_FORMULA: Final = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)  # full width too


def csv_answer(file_name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """Return a list as a file to keep.

    Args:
        file_name: In ASCII, without quotation marks.
        header: Names of the columns.
        rows: Values; None is an empty cell.

    Guarantees: no cell with a text begins as a formula does: an apostrophe stands before it (OWASP, CSV
    Injection). Numbers stay numbers.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows([safe_cell(value) for value in row] for row in rows)
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def safe_cell(value: object) -> object:
    """Return a value that a spreadsheet only ever shows."""
    if value is None or isinstance(value, int | float):
        return value
    cell = str(value)
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULA) else cell
