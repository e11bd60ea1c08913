"""`grader doctor`."""

from __future__ import annotations

import typer

from grader.cli._options import ListFormatOption
from grader.report.listing import print_listing


def doctor(output: ListFormatOption = None) -> None:
    """Show what this machine offers: GPU, compilers, sandbox.

    Exits with status 1 if submissions cannot be isolated on this machine.

    \b
    Examples:
      grader doctor
      grader doctor --format json | jq 'select(.state != "ok")'
    """
    from grader.machine.doctor import can_isolate, examine
    from grader.report.tables import FINDINGS

    findings = list(examine())
    print_listing(FINDINGS, findings, output)
    if not can_isolate(findings):
        raise typer.Exit(1)
