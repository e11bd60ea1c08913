"""CSV in which foreign text is neither a formula nor reordered, for spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from grader.report.console import BIDIRECTIONAL
from grader.verdict.columns import Cell

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters that make Excel, LibreOffice or Google Sheets evaluate a cell (OWASP, "CSV Injection")."""

_ESCAPED = re.compile(f"[\\r{BIDIRECTIONAL}]")
"""Characters that reorder text, and the carriage return, which Python's writer leaves unquoted: it would end a row."""


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
    """A number as it is; text without reordering characters, behind an apostrophe if it is a formula."""
    if not isinstance(value, str):
        return value
    shown = _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", value)
    return f"'{shown}" if value.startswith(_FORMULA) else shown


def _drained(text: io.StringIO) -> str:
    line = text.getvalue()
    text.seek(0)
    text.truncate()
    return line
