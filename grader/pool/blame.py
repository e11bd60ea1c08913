"""The verdict on a submission that ends the processes that grade it."""

from __future__ import annotations

from collections.abc import Sequence

from grader.catalog.requests import Request
from grader.verdict.models import Environment, Settings, Verdict


def crashed(request: Request, settings: Settings, environment: Environment, losses: Sequence[str]) -> Verdict:
    """`crashed`, with how each process ended."""
    from grader.grading.outcome import diagnose
    from grader.grading.record import Record

    what = f"{len(losses)} grading processes ended while they graded it ({'; '.join(losses)})"
    remedy = "look for an access out of bounds, or for memory that grows without end"
    return Record(request, diagnoses=[diagnose("crashed", what, remedy=remedy)]).verdict(settings, environment)
