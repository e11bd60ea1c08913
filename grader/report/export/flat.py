"""One row per verdict, for spreadsheets and data frames: CSV and Parquet with the same columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO

from grader.errors import UserError
from grader.report.json_csv import csv_lines
from grader.verdict.columns import EXPORTED, Cell, Figure
from grader.verdict.models import Verdict

_ROWS_IN_A_GROUP = 10_000
"""Rows in memory at a time, and in each row group of a Parquet file."""


def flat(verdict: Verdict) -> dict[str, Cell]:
    """A verdict as a row of the exported columns; absent is None."""
    return {column.name: _cell(column.value(verdict)) for column in EXPORTED}


def verdicts_csv(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """The header, then one record per verdict, each with its newline."""
    return csv_lines([column.name for column in EXPORTED], map(flat, verdicts))


def require_pyarrow() -> None:
    """Raise UserError if Parquet cannot be written, before a file is opened for it."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise UserError(
            "Parquet needs pyarrow; `pip install '.[parquet]'` in the grader's checkout, or use --format csv"
        ) from error


def write_parquet(verdicts: Iterable[Verdict], out: BinaryIO) -> None:
    """Write the rows with typed columns."""
    import pyarrow
    import pyarrow.parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(column.name, types[column.cell_type]) for column in EXPORTED])
    with pyarrow.parquet.ParquetWriter(out, schema) as writer:
        for rows in _groups(map(flat, verdicts)):
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def _cell(value: Figure) -> Cell:
    """A column's value in a flat file: plain types, several texts joined by spaces."""
    if isinstance(value, tuple):
        return " ".join(value)
    return str(value) if isinstance(value, str) else value  # an enumeration is printed as its value


def _groups(rows: Iterable[dict[str, Cell]]) -> Iterator[list[dict[str, Cell]]]:
    rows = iter(rows)
    while group := list(islice(rows, _ROWS_IN_A_GROUP)):
        yield group
