"""`grader report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from db import Store
from grader.cli._options import DATABASE, Database


def report(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="An empty or new folder, or an earlier report.")],
    db: Database = DATABASE,
) -> None:
    """Write a static site of all verdicts: status, leaderboards, fast_p, speedups, one page a verdict.

    It needs no server and no network: open index.html, or publish the folder as it is.

    \b
    Examples:
      grader report --out report/
      grader report --out report/ --db runs/grader.db
    """
    from grader.report.site import write_site

    with Store.open(db, must_exist=True) as store:
        written = write_site(store, out)
    if written.unreadable:
        print(f"{written.unreadable} verdicts of another version of the grader are shown in short", file=sys.stderr)
    print(f"{written.pages} pages, begin with {written.index}")
