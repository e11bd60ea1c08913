"""Listings: a table on a terminal, tab-separated lines in a pipe, JSON lines, CSV."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from rich.console import RenderableType
from rich.text import Text

from grader.errors import printable
from grader.report.console import console
from grader.report.json_csv import csv_lines

Item = TypeVar("Item")


class ListFormat(StrEnum):
    """Output formats of a listing."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True)
class Listing(Generic[Item]):
    """Columns and texts for printing items of one kind."""

    columns: tuple[str, ...]
    cells: Callable[[Item], Sequence[str]]
    """One text per column."""
    json: Callable[[Item], str]
    """One line of JSON."""
    tables: Callable[[Iterable[Item]], Iterable[RenderableType]]
    """Parts that a terminal shows, each as soon as it is known."""


def print_listing(listing: Listing[Item], items: Iterable[Item], form: ListFormat | None) -> None:
    """Print each item as soon as it is known; by default a table on a terminal, else plain lines."""
    if form is ListFormat.TABLE or (form is None and sys.stdout.isatty()):
        for part in listing.tables(items):
            console().print(part, soft_wrap=isinstance(part, Text))
        return
    if form is ListFormat.JSON:
        lines: Iterator[str] = map(listing.json, items)
    elif form is ListFormat.CSV:
        rows = (dict(zip(listing.columns, listing.cells(item), strict=True)) for item in items)
        lines = (line.removesuffix("\n") for line in csv_lines(listing.columns, rows))
    else:
        lines = plain_lines(listing.columns, map(listing.cells, items))
    for line in lines:
        print(line, flush=True)


def plain_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The header, then one line per row, cells between tabs; a tab or line break in a cell is escaped."""
    yield "\t".join(columns)
    for row in rows:
        yield "\t".join(map(printable, row))
