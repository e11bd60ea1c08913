"""The leaderboard in Markdown, for a README or an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from db.leaderboard import Leaderboard
from grader.report.boards import (
    AUTHORS_RULE,
    empty_line,
    entrant,
    left_out_line,
    remarks,
    shown_rank,
    summary_cells,
    summary_header,
)
from grader.report.console import clean


def leaderboard_markdown(board: Leaderboard) -> str:
    """A table of the entries and one of the authors, with what they rank by."""
    left_out = left_out_line(board)
    below = f"\n\n{_cell(left_out)}." if left_out else ""
    if not board.entries:
        return empty_line(board) + below
    compared = any(entry.vs_compile is not None for entry in board.entries)
    rows = [
        [
            shown_rank(entry.rank, entry.tied),
            entry.problem,
            entrant(entry),
            entry.device_name,
            "" if entry.speedup is None else f"{entry.speedup:.3f}x",
            "" if entry.ci_low is None or entry.ci_high is None else f"{entry.ci_low:.3f} to {entry.ci_high:.3f}",
            *(["" if entry.vs_compile is None else f"{entry.vs_compile:.3f}x"] if compared else []),
            entry.status,
            ", ".join(remarks(entry)),
        ]
        for entry in board.entries
    ]
    header = ["rank", "problem", "author", "device", "speedup", "95% interval"]
    header += [*(["vs best compile"] if compared else []), "status", "remarks"]
    authors = _table(summary_header(board.summaries), map(summary_cells, board.summaries))
    return f"{_table(header, rows)}\n\nBy author: {AUTHORS_RULE}.\n\n{authors}{below}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Foreign text escaped for one table cell: no markup and no line breaks."""
    escaped = "".join(f"\\{letter}" if letter in r"\`*_{}[]<>#|!~" else letter for letter in clean(text))
    return escaped.replace("\n", " ")
