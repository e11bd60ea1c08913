"""Judges other draws of the timed size, untimed, where a timed call was wrong.

Timed calls run on draws of their own. What is wrong for a class or a region of the inputs that the first draw lacks
shows there first, and has nothing to do with timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grader.grading.backward.causes import explain
from grader.grading.backward.experiments import Cases
from grader.grading.backward.products import judge_products
from grader.grading.candidate import Candidate
from grader.grading.forward.judge import judge_case
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import OTHER_DRAWS
from grader.grading.outcome import on_another_draw
from grader.verdict.models import Diagnosis


def wrong_untimed(
    candidate: Candidate, oracle: Oracle, case: Case, experiment_cases: Sequence[Cases]
) -> list[Diagnosis]:
    """The faults of the first of OTHER_DRAWS draws that has any, if the first draw is still right.

    Raises Stopped.
    """
    if case.released or oracle.is_slow(case):
        return []
    if judge_case(candidate, oracle, case)[1] is not None:
        return []  # earlier calls are at fault, and no value of another draw
    for draw in range(1, OTHER_DRAWS + 1):
        other = oracle.case(case.variant, draw=draw)
        _, wrong = judge_case(candidate, oracle, other)
        if wrong is not None:
            return [on_another_draw(wrong)]
        if not other.wrt or not experiment_cases:
            continue
        judged = judge_products(candidate, other)
        if judged.diagnoses:
            run_on = replace(experiment_cases[0], first=other, in_eval=None)
            return list(map(on_another_draw, explain(candidate, oracle, (), other, judged, run_on)))
    return []
