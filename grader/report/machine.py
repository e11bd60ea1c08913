"""Verdicts and boards for programs: JSON and CSV. An absent value is null, or an empty cell."""

from __future__ import annotations

from db.leaderboard import Leaderboard
from db.summaries import Entry
from grader.report.csv_text import csv_lines
from grader.verdict.value import Value


def json_line(value: Value) -> str:
    """A verdict, or another value, as one line of JSON."""
    return value.model_dump_json()


def leaderboard_json(board: Leaderboard) -> str:
    """The whole board as one indented JSON object."""
    return board.model_dump_json(indent=2)


def leaderboard_csv(board: Leaderboard) -> str:
    """The board as CSV: a header, then one record per entry."""
    rows = [entry.model_dump(mode="json") | {"labels": " ".join(entry.labels)} for entry in board.entries]
    return "".join(csv_lines(tuple(Entry.model_fields), rows)).removesuffix("\n")
