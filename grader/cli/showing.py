"""`grader show` and `grader doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from db.read_only import open_to_read
from grader.cli._options import DATABASE, Database
from grader.report.console import console
from grader.report.machine import json_line
from grader.report.text import verdict_in_full


def show(
    verdict_id: Annotated[int, typer.Argument(metavar="ID", help="A verdict's number, as `grade` prints it.")],
    db: Database = DATABASE,
    timing: Annotated[
        bool, typer.Option("--timing", help="Also show every sample, the device's clocks, and the time of each stage.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as one JSON object.")] = False,
) -> None:
    """Show a verdict in full: diagnosis, gradients, build log, timing, environment, source.

    \b
    Examples:
      grader show 12
      grader show 12 --timing
      grader show 12 --json | jq .diagnoses
    """
    with open_to_read(db) as store:
        stored = store.get(verdict_id)
    if as_json:
        print(json_line(stored.verdict))
    else:
        console().print(verdict_in_full(stored, timing=timing))


def doctor() -> None:
    """Show what this machine offers: GPUs, nvcc, compiler, PyTorch, each layer of the sandbox.

    Exits with status 1 if submissions cannot be isolated on this machine.

    \b
    Example:
      grader doctor
    """
    from grader.machine.doctor import can_isolate, examine
    from grader.report.tables import findings_table

    findings = list(examine())
    console().print(findings_table(findings))
    if not can_isolate(findings):
        raise typer.Exit(1)
