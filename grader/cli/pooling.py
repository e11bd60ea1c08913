"""`grader pool status`: what graders are doing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from grader.cli._options import DATABASE

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def pool() -> None:
    """See what graders are doing: GPUs, rate, time left.

    \b
    Examples:
      grader pool status
    """


@app.command()
def status(
    db: Annotated[str, typer.Option("--db", metavar="PATH|URL", help="The database that they use.")] = DATABASE,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per grader.")] = False,
) -> None:
    """List the graders and servers at work with a database.

    Each with its GPUs or processes, rate, failures and time left.

    \b
    Examples:
      grader pool status
      grader pool status --db runs/grader.db --json
    """
    from db.at_work import at_work
    from db.read_only import open_to_read
    from grader.report.work import status_lines

    with open_to_read(db) as store:
        graders = at_work(store)
    if as_json:
        for one in graders:
            print(json.dumps({**asdict(one), "work": one.work.model_dump() if one.work else None}))
        return
    for line in status_lines(graders) or ["no grader is at work with this database"]:
        print(line)
