"""`grader diff`: compares two databases or runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from db.changes import compare
from db.read_only import open_to_read
from db.rows import Row, read_rows
from db.runs import run_ids
from grader.cli._options import DATABASE, Database, ListFormatOption
from grader.errors import UserError
from grader.report.changes import CHANGES, changes_tally
from grader.report.listing import print_listing

_Side = Annotated[str, typer.Argument(metavar="DB|RUN", help="A database, or the number of a run in --db.")]


def diff(before: _Side, after: _Side, output: ListFormatOption = None, db: Database = DATABASE) -> None:
    """Compare two databases or runs: results, times and ranks.

    fixed, broken, changed: another status. faster, slower: correct in both, and the 95% intervals of the speedup do not
    overlap. added, removed: in one of them only. moved: an author with another rank. Compared is the newest verdict on
    each submission, by device, problem, author, label and sample. A run has the verdicts that it reached itself, not
    those that it took from the database.

    \b
    Examples:
      grader diff before.db after.db
      grader diff 1 2
      grader diff 1 2 --db runs/grader.db --format json | jq 'select(.kind == "broken")'
    """
    found = compare(_rows(before, db), _rows(after, db))
    print_listing(CHANGES, found.changes, output)
    print(changes_tally(found), file=sys.stderr)


def _rows(side: str, db: str) -> list[Row]:
    """The verdicts of one side. A name of digits is a run, unless there is such a file."""
    if not side.isascii() or not side.isdigit() or Path(side).exists():
        with open_to_read(side) as store:
            return read_rows(store)
    with open_to_read(db) as store:
        known = run_ids(store)
        if int(side) not in known:
            raise UserError(f"{db}: no run {side}; {f'the newest is {known[-1]}' if known else 'there is none yet'}")
        return read_rows(store, run=int(side))
