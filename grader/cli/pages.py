"""`grader report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from db.read_only import open_to_read
from grader.cli._options import DATABASE, Database


def report(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="An empty or new folder, or an earlier report.")],
    db: Database = DATABASE,
) -> None:
    """Write a static site of all verdicts: status, leaderboards, fast_p, speedups, one page per verdict.

    The site needs no server and no network: open index.html, or publish the folder.

    \b
    Examples:
      grader report --out report/
      grader report --out report/ --db runs/grader.db
    """
    from grader.report.site import write_site

    with open_to_read(db) as store:
        written = write_site(store, out)
    if written.unreadable:
        print(
            f"{written.unreadable} verdicts written by another version of the grader are shown in short",
            file=sys.stderr,
        )
    print(f"{written.pages} pages; start at {written.index}")
