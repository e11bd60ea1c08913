"""The listing of `grader problems check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from grader.report.console import one_line
from grader.report.listing import Listing

if TYPE_CHECKING:
    from grader.grading.problem_check import ProblemCheck  # imports torch, which takes seconds


def problem_check_line(check: ProblemCheck) -> Text:
    """One line: whether the problem can be graded, and if not, why."""
    word, style = {True: ("gradable", "green"), False: ("not gradable", "red"), None: ("not tried", "yellow")}[
        check.gradable
    ]
    parts = [f"{check.fault.code}: {check.fault.reason}"] if check.fault else []
    parts += [check.remark] if check.remark else []
    reasons = f": {one_line('; '.join(parts))}" if parts else ""
    return Text.assemble((f"{word:<13}", style), one_line(check.id), reasons)


def check_listing() -> Listing[ProblemCheck]:
    """The listing of `grader problems check`."""
    return Listing(
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
