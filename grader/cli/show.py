"""`grader show`."""

from __future__ import annotations

from typing import Annotated

import typer

from db.read_only import open_to_read
from grader.cli._options import DATABASE, Database
from grader.errors import UserError
from grader.report.console import console
from grader.report.json_csv import json_line
from grader.report.text import verdict_in_full
from grader.verdict.feedback import feedback
from grader.verdict.feedback.text import FEWEST_TOKENS


def show(
    verdict_id: Annotated[int, typer.Argument(metavar="ID", help="A verdict's number, as `grade` prints it.")],
    db: Database = DATABASE,
    timing: Annotated[
        bool, typer.Option("--timing", help="Also show every sample, the device's clocks, and the time of each stage.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as one JSON object.")] = False,
    as_feedback: Annotated[
        bool, typer.Option("--feedback", help="Only the text to put into a model's next prompt.")
    ] = False,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=FEWEST_TOKENS, help="At most so many tokens of --feedback, by an estimate.")
    ] = 1000,
) -> None:
    """Show a verdict in full, or as feedback for a model.

    In full are its diagnosis, gradients, build log, timing, environment and source.

    --feedback prints what failed, where, the lines of the source, the compiler's first error and the error pattern; for
    a correct submission, what its profile says to do next. The submission's own text in it is fenced, cleaned and cut.

    \b
    Examples:
      grader show 12
      grader show 12 --timing
      grader show 12 --json | jq .diagnoses
      grader show 12 --feedback --max-tokens 500
    """
    if as_json and as_feedback:
        raise UserError("--json and --feedback: choose one of them")
    with open_to_read(db) as store:
        stored = store.get(verdict_id)
    if as_json:
        print(json_line(stored.verdict))
    elif as_feedback:
        print(feedback(stored.verdict, source=stored.submission_source, max_tokens=max_tokens), end="")
    else:
        console().print(verdict_in_full(stored, timing=timing))
