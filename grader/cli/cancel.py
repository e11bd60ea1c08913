"""`grader cancel`: ends what is waiting or being graded."""

from __future__ import annotations

from typing import Annotated

import typer

from grader.cli._options import DATABASE
from grader.errors import UserError, printable


def cancel(
    author: Annotated[str | None, typer.Option(metavar="NAME", help="All that this author has, in any batch.")] = None,
    batch: Annotated[str | None, typer.Option(metavar="ID", help="A batch that was sent to a server.")] = None,
    run: Annotated[
        int | None, typer.Option(metavar="N", help="A `grader grade` that runs; `grader pool status` lists them.")
    ] = None,
    db: Annotated[str, typer.Option("--db", metavar="PATH|URL", help="The database that they use.")] = DATABASE,
) -> None:
    """End gradings of an author, a batch or a run.

    Stored verdicts are kept. What waits is not graded, what runs ends at its next job. It reaches all graders and
    servers that use the database, within about a second.

    \b
    Examples:
      grader cancel --author ann
      grader cancel --batch 8OtkGVmSRoSlXTTvmFHDtw
      grader cancel --run 12
    """
    from db import Store, cancels

    if sum(one is not None for one in (author, batch, run)) != 1:
        raise UserError("name one of --author, --batch and --run")
    with Store.open(db, must_exist=True) as store:
        if author is not None:
            lines, runs = cancels.cancel_author(store, author)
            print(f"cancelled {_many(lines, 'waiting line')} of {printable(author)}, and told {_many(runs, 'grader')}")
        elif batch is not None:
            print(f"cancelled {_many(cancels.cancel_batch(store, batch), 'line')} of batch {printable(batch)}")
        elif run is not None:
            cancels.cancel_run(store, run)
            print(f"told run {run} to end")


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
