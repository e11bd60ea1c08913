"""Verdicts and boards for programs: JSON and CSV. An absent value is null, or an empty cell."""

from __future__ import annotations

import json
import re

from db.leaderboard import Leaderboard
from db.summaries import Entry
from grader.report.csv_text import csv_lines
from grader.verdict.value import Value

_NOT_ASCII = re.compile(r"[^\x00-\x7e]")
"""JSON escapes the control characters of ASCII itself, but the last."""


def json_line(value: Value) -> str:
    """A verdict, or another value, as one line of JSON."""
    return escaped_json(value.model_dump_json())


def leaderboard_json(board: Leaderboard) -> str:
    """The whole board as one indented JSON object."""
    return escaped_json(board.model_dump_json(indent=2))


def escaped_json(text: str) -> str:
    """JSON with an escape for each character that breaks or reorders lines where it is shown."""
    return _NOT_ASCII.sub(lambda match: match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1], text)


def leaderboard_csv(board: Leaderboard) -> str:
    """The board as CSV: a header, then one record per entry."""
    rows = [entry.model_dump(mode="json") | {"labels": " ".join(entry.labels)} for entry in board.entries]
    return "".join(csv_lines(tuple(Entry.model_fields), rows)).removesuffix("\n")
