"""`grader problems`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from grader.catalog import find_problems
from grader.cli._options import ProblemFolders
from grader.report.console import console
from grader.report.machine import json_line


def list_problems(
    problems: ProblemFolders = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a problem.")] = False,
) -> None:
    """List the problems: their variants, what of each is gradable, and what not and why.

    \b
    Examples:
      grader problems
      grader problems --problems KernelBench/level1 --json
    """
    from grader.gradable import facts
    from grader.report.tables import problems_table, skipped_lines

    catalog = find_problems(problems or ())
    for line in skipped_lines(catalog.skipped):
        print(line, file=sys.stderr)
    found = (facts(problem) for problem in catalog.problems.values())
    if as_json:
        for one in found:
            print(json_line(one))
    else:
        console().print(problems_table(found))
