"""The leaderboard in Markdown, for a README or an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from db.leaderboard import Leaderboard
from grader.report.boards import AUTHORS_RULE, empty_line, entry_cells, left_out_line, summary_cells
from grader.report.console import clean

COLUMNS = ("rank", "problem", "author", "device", "speedup", "95% interval", "vs best compile", "status", "remarks")


def leaderboard_markdown(board: Leaderboard) -> str:
    """A table of the entries and one of the authors, with what they rank by."""
    left_out = left_out_line(board)
    below = f"\n\n{_cell(left_out)}." if left_out else ""
    if not board.entries:
        return empty_line(board) + below
    rows = list(map(entry_cells, board.entries))
    columns = [one for one in COLUMNS if one != "vs best compile" or any(cells[one] for cells in rows)]
    entries = _table(columns, ([cells[column] for column in columns] for cells in rows))
    authors = list(map(summary_cells, board.summaries))
    summaries = _table(list(authors[0]), (list(cells.values()) for cells in authors))
    return f"{entries}\n\nBy author: {AUTHORS_RULE}.\n\n{summaries}{below}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Foreign text escaped for one table cell: no markup and no line breaks."""
    escaped = "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|!~" else letter for letter in clean(text))
    return escaped.replace("\n", " ")
