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
from grader.report.console import one_line, plain_table
from grader.report.listing import Listing

if TYPE_CHECKING:
    from grader.grading.problem_check import ProblemCheck  # imports torch, which takes seconds

_STYLES = {"ok": "green", "limited": "yellow", "missing": "red"}


def _problem_cells(problem: ProblemFacts) -> list[str]:
    left_out = (f"{one.name} ({one.why_no_gradient})" for one in problem.operands if one.why_no_gradient)
    forward, backward = ("yes" if one else "no" for one in (problem.forward, problem.backward))
    return [problem.id, forward, backward, ", ".join(problem.variants), problem.why_not or "; ".join(left_out)]


def _problems_table(problems: Iterable[ProblemFacts]) -> Table:
    table = plain_table("problem", "forward", "backward", "variants", "left out of the gradient check, or why not")
    for problem in problems:
        name, *graded, variants, remark = _problem_cells(problem)
        colours = (Text(one, style="green" if one == "yes" else "yellow") for one in graded)
        table.add_row(one_line(name), *colours, variants, remark)
    return table


PROBLEMS: Listing[ProblemFacts] = Listing(
    columns=("problem", "forward", "backward", "variants", "remark"),
    cells=_problem_cells,
    json=lambda problem: problem.model_dump_json(),
    tables=lambda problems: [_problems_table(problems)],
)
"""The listing of `grader problems`."""


def _check_cells(check: ProblemCheck) -> list[str]:
    gradable = {True: "yes", False: "no", None: "not tried"}[check.gradable]
    code, *reason = (check.fault.code, check.fault.reason) if check.fault else ("",)
    return [check.id, gradable, code, "; ".join(filter(None, [*reason, check.remark]))]


def _check_line(check: ProblemCheck) -> Text:
    """One line: whether the problem can be graded, and if not, why."""
    name, gradable, *rest = _check_cells(check)
    word, style = {"yes": ("gradable", "green"), "no": ("not gradable", "red")}.get(gradable, (gradable, "yellow"))
    return Text.assemble((f"{word:<13}", style), ": ".join(map(one_line, filter(None, (name, *rest)))))


CHECKS: Listing[ProblemCheck] = Listing(
    columns=("problem", "gradable", "code", "remark"),
    cells=_check_cells,
    json=lambda check: check.model_dump_json(),
    tables=lambda checks: map(_check_line, checks),
)
"""The listing of `grader problems check`."""


def _findings_table(findings: Iterable[Finding]) -> Table:
    table = plain_table()
    for finding in findings:
        table.add_row(finding.subject, Text(finding.state, style=_STYLES[finding.state]), finding.detail)
    return table


FINDINGS: Listing[Finding] = Listing(
    columns=("subject", "state", "detail"),
    cells=lambda finding: [finding.subject, finding.state, finding.detail],
    json=lambda finding: json.dumps(asdict(finding)),
    tables=lambda findings: [_findings_table(findings)],
)
"""The listing of `grader doctor`."""
