"""Listings of problems, of their checks, and of what a machine offers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from grader.catalog.problem_facts import ProblemFacts
from grader.machine.doctor import Finding
from grader.report.console import one_line
from grader.report.listing import Listing

if TYPE_CHECKING:
    from grader.grading.problem_check import ProblemCheck  # imports torch, which takes seconds

_STYLES = {"ok": "green", "limited": "yellow", "missing": "red"}


def problems_table(problems: Iterable[ProblemFacts]) -> Table:
    """One row per problem."""
    table = Table(box=None, pad_edge=False)
    for column in ("problem", "forward", "backward", "variants", "left out of the gradient check, or why not"):
        table.add_column(column, overflow="fold")
    for problem in problems:
        table.add_row(
            one_line(problem.id),
            _yes(problem.forward),
            _yes(problem.backward),
            ", ".join(problem.variants),
            problem.why_not or "; ".join(_left_out(problem)),
        )
    return table


def _problem_cells(problem: ProblemFacts) -> list[str]:
    remark = problem.why_not or "; ".join(_left_out(problem))
    forward, backward = ("yes" if one else "no" for one in (problem.forward, problem.backward))
    return [problem.id, forward, backward, ", ".join(problem.variants), remark]


PROBLEMS: Listing[ProblemFacts] = Listing(
    columns=("problem", "forward", "backward", "variants", "remark"),
    cells=_problem_cells,
    json=lambda problem: problem.model_dump_json(),
    tables=lambda problems: [problems_table(problems)],
)
"""The listing of `grader problems`."""


def problem_check_line(check: ProblemCheck) -> Text:
    """One line: whether the problem can be graded, and if not, why."""
    word, style = {True: ("gradable", "green"), False: ("not gradable", "red"), None: ("not tried", "yellow")}[
        check.gradable
    ]
    parts = [f"{check.fault.code}: {check.fault.reason}"] if check.fault else []
    parts += [check.remark] if check.remark else []
    reasons = f": {one_line('; '.join(parts))}" if parts else ""
    return Text.assemble((f"{word:<13}", style), one_line(check.id), reasons)


CHECKS: Listing[ProblemCheck] = Listing(
    columns=("problem", "gradable", "code", "remark"),
    cells=lambda check: [
        check.id,
        {True: "yes", False: "no", None: "not tried"}[check.gradable],
        check.fault.code if check.fault else "",
        "; ".join(filter(None, [check.fault.reason if check.fault else None, check.remark])),
    ],
    json=lambda check: check.model_dump_json(),
    tables=lambda checks: map(problem_check_line, checks),
)
"""The listing of `grader problems check`."""


def findings_table(findings: Iterable[Finding]) -> Table:
    """One row per finding."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        table.add_row(finding.subject, Text(finding.state, style=_STYLES[finding.state]), finding.detail)
    return table


FINDINGS: Listing[Finding] = Listing(
    columns=("subject", "state", "detail"),
    cells=lambda finding: [finding.subject, finding.state, finding.detail],
    json=lambda finding: json.dumps(asdict(finding)),
    tables=lambda findings: [findings_table(findings)],
)
"""The listing of `grader doctor`."""


def _left_out(problem: ProblemFacts) -> list[str]:
    return [f"{operand.name} ({operand.why_no_gradient})" for operand in problem.operands if operand.why_no_gradient]


def _yes(value: bool) -> Text:
    return Text("yes", style="green") if value else Text("no", style="yellow")
