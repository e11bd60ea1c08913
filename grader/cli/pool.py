"""`grader pool status`: what graders are doing."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from grader.cli._options import DATABASE, ListFormatOption, ShortForJson

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
    output: ListFormatOption = None,
    as_json: ShortForJson = False,
) -> None:
    """List the graders and servers at work with a database.

    Each with its GPUs or processes, rate, failures and time left.

    \b
    Examples:
      grader pool status
      grader pool status --db runs/grader.db --json
    """
    from db.read_only import open_to_read
    from db.runs import at_work
    from grader.report.listing import ListFormat, print_listing
    from grader.report.work import AT_WORK

    with open_to_read(db) as store:
        graders = at_work(store)
    print_listing(AT_WORK, graders, ListFormat.JSON if as_json else output)
    if not graders:
        print("no grader is at work with this database", file=sys.stderr)
