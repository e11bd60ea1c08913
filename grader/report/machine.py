"""For programs: JSON, one object a line, and CSV. Absent is null, or an empty cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from db.leaderboard import Entry, Leaderboard
from grader.verdict.models import Value


def json_line(value: Value) -> str:
    """A verdict, or another value, as one line of JSON."""
    return value.model_dump_json()


def leaderboard_json(board: Leaderboard) -> str:
    """The whole board as one object, indented."""
    return board.model_dump_json(indent=2)


def leaderboard_csv(board: Leaderboard) -> str:
    """One row an entry, under a header."""
    rows = [entry.model_dump(mode="json") | {"labels": " ".join(entry.labels)} for entry in board.entries]
    return _csv(tuple(Entry.model_fields), rows)


def _csv(header: Sequence[str], rows: Sequence[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().removesuffix("\n")
