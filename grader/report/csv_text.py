"""CSV in which foreign text is neither a formula nor reordered, for spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from grader.errors import printable
from grader.verdict.columns import Cell

_FORMULA = re.compile("(^|;)(?=\\s*[=+@\uff1d\uff0b\uff0d\uff20-])")
"""The start of a cell that Excel, LibreOffice or Google Sheets evaluate: its first character, or its full-width form
(OWASP, "CSV Injection"). In some countries' settings a semicolon ends a cell. Tab and line ends are escaped."""


def csv_lines(header: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> Iterator[str]:
    """The header, then one record per row, each with its newline. None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        yield _drained(text)
        writer.writerow({name: csv_cell(value) for name, value in row.items()})
    yield _drained(text)


def csv_cell(value: Cell) -> Cell:
    """A number as it is; text on one line (`printable`), behind an apostrophe if it could be a formula."""
    if not isinstance(value, str):
        return value
    return _FORMULA.sub(r"\1'", printable(value))


def _drained(text: io.StringIO) -> str:
    line = text.getvalue()
    text.seek(0)
    text.truncate()
    return line
