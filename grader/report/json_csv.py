"""JSON and CSV in which foreign text neither ends a line nor is a formula."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from grader.errors import printable
from grader.verdict.columns import Cell
from grader.verdict.value import Value

_NOT_ASCII = re.compile(r"[^\x00-\x7e]")
"""JSON escapes the control characters of ASCII itself, but the last."""

_FORMULA = re.compile("(^|;)(?=\\s*[=+@\uff1d\uff0b\uff0d\uff20-])")
"""The start of a cell that Excel, LibreOffice or Google Sheets evaluate: its first character, or its full-width form
(OWASP, "CSV Injection"). In some countries' settings a semicolon ends a cell. Tab and line ends are escaped."""


def json_line(value: Value) -> str:
    """A verdict, or another value, as one line of JSON."""
    return escaped_json(value.model_dump_json())


def escaped_json(text: str) -> str:
    """JSON with an escape for each character that breaks or reorders lines where it is shown."""
    return _NOT_ASCII.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


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
