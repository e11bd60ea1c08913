"""Tells a call that is wrong because it is timed from one that is wrong because of its values.

Timed calls draw more values than untimed checks: where a rare element decides, as at the margin of a loss, or a class
that the first draw lacks, they may be the first to show a fault. So untimed calls are asked on the same values, and on
other draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grader.grading.backward.causes import explain as explain_gradients
from grader.grading.backward.experiments import ExperimentCases
from grader.grading.backward.products import judge_product
from grader.grading.candidate.candidate import Candidate
from grader.grading.forward.judge import judge_case
from grader.grading.messages import on_another_draw
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import OTHER_DRAWS
from grader.grading.timing.draws import Source
from grader.verdict.models import Diagnosis


def fault_of_values(candidate: Candidate, oracle: Oracle, case: Case, source: Source) -> Diagnosis | None:
    """An output that is wrong on a timed call's values without its timing too, if the first draw is right.

    Raises Stopped.
    """
    if case.released or oracle.is_slow(case) or judge_case(candidate, oracle, case)[1] is not None:
        return None
    draw = source.values()
    other = replace(case, inputs=tuple(draw.inputs), state=draw.state, buffers={})
    other = replace(other, outputs=variations.outputs_of(oracle, other))
    wrong = judge_case(candidate, oracle, other)[1]
    return None if wrong is None else on_another_draw(wrong)


def faults_of_draws(
    candidate: Candidate, oracle: Oracle, case: Case, experiment_cases: Sequence[ExperimentCases]
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
        judged = judge_product(candidate, oracle, other)
        if judged.diagnoses:
            run_on = replace(experiment_cases[0], first=other, eval_cases=None)
            return list(map(on_another_draw, explain_gradients(candidate, oracle, (), other, judged, run_on)))
    return []
