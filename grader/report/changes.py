"""The listing of `grader diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from db.changes import KINDS, Change, Comparison
from grader.report.console import one_line, plain_table
from grader.report.listing import Listing

_COLUMNS = ("change", "problem", "submission", "device", "before", "after", "source")
_STYLES = {"fixed": "green", "faster": "green", "broken": "red", "slower": "red"}


def changes_tally(found: Comparison) -> str:
    """One line: the number of changes of each kind, and of submissions with the same result."""
    counts = Counter(change.kind for change in found.changes)
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]]
    return ", ".join([*parts, f"{found.same} as before"])


def _cells(change: Change) -> list[str]:
    source = "changed" if change.source_changed else ""
    return [change.kind, change.problem, change.submission, change.device_name, change.before, change.after, source]


def _tables(changes: Iterable[Change]) -> list[RenderableType]:
    table = plain_table(*_COLUMNS)
    for change in changes:
        _, *cells = map(one_line, _cells(change))
        table.add_row(Text(change.kind, style=_STYLES.get(change.kind, "")), *cells)
    return [table] if table.row_count else []


CHANGES: Listing[Change] = Listing(
    columns=_COLUMNS, cells=_cells, json=lambda change: change.model_dump_json(), tables=_tables
)
