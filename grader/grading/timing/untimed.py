"""Tells a call that is wrong because it is timed from one that is wrong because of its values.

Timed calls draw more values than untimed checks: where a rare element decides, as at the margin of a loss, or a class
that the first draw lacks, they may be the first to show a fault. So an untimed call is asked on the very values of the
wrong one, then on other draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from grader import protocol as p
from grader.grading import chance
from grader.grading.backward.causes import explain as explain_gradients
from grader.grading.backward.experiments import ExperimentCases
from grader.grading.backward.products import judge_product
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_output
from grader.grading.compare import tolerance
from grader.grading.compare.expected import Expected
from grader.grading.forward.explain import explain
from grader.grading.forward.judge import judge_case
from grader.grading.forward.one_forward import is_right, one_forward
from grader.grading.messages import on_another_draw
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import OTHER_DRAWS
from grader.grading.timing.comparison import ExactCheck
from grader.grading.timing.pair import WrongCall
from grader.verdict.models import Diagnosis


def faults_of_values(candidate: Candidate, oracle: Oracle, wrong: WrongCall) -> list[Diagnosis]:
    """The diagnoses of an untimed call on the values of a wrong timed one.

    Empty if that is right or returns something else, such as what another call left, if the case that was right before
    is wrong by now, or if it is too large to ask. Raises Stopped.
    """
    case, timed = wrong.case, wrong.call.sealed
    expected = ExactCheck(oracle, case, wrong.source, tf32=False)
    outputs = {name: output for name in case.outputs if (output := expected.of("outputs", name)) is not None}
    if wrong.source.few_bits or case.released or set(outputs) != set(case.outputs):
        return []
    draw = wrong.source.values()
    gradients = {name: expected.of("gradients", name) for name in case.gradients} if draw.cotangents else {}
    other = replace(
        case,
        seed=chance.new_seed(),
        inputs=tuple(draw.inputs),
        state=draw.state,
        cotangents=draw.cotangents,
        outputs=outputs,
        gradients=gradients,
        buffers={},
    )
    candidate.forget(everything=True)
    if not all(is_right(candidate, case, name, "forward of an earlier draw") for name in case.outputs):
        return []
    result = candidate.run(one_forward(candidate, other), "forward", "forward of another draw")
    for name in outputs:
        check, sealed = check_output(other, result, name), result.sealed.get(p.output_source("a", name))
        if check.status == "failed" and sealed is not None:
            if not _agree(outputs[name], timed.get(p.output_source("t", name)), sealed):
                return []
            return [on_another_draw(explain(candidate, oracle, other, check, sealed))]
    if not draw.cotangents:
        return []
    judged = judge_product(candidate, other)
    if judged.gradients_are_right or judged.product is None or judge_product(candidate, case).diagnoses:
        return []
    operands = candidate.operands(other)
    for fault in judged.faults:
        value, gradient = timed.get(p.gradient_source("t", operands.get(fault.name))), gradients[fault.name]
        ours = judged.product.gradients[fault.name]
        taken = None if value is None else candidate.taken(other, fault.name, value)
        if gradient is None or ours is None or not _agree(gradient, taken, ours):
            return []
    alone = ExperimentCases.of_one(other, oracle.budget.experiment_seconds)
    return [on_another_draw(one) for one in explain_gradients(candidate, oracle, (), other, judged, alone)]


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
        judged = judge_product(candidate, other)
        if judged.diagnoses:
            run_on = replace(experiment_cases[0], first=other, eval_cases=None)
            return list(map(on_another_draw, explain_gradients(candidate, oracle, (), other, judged, run_on)))
    return []


def _agree(expected: Expected, timed: torch.Tensor | None, untimed: torch.Tensor) -> bool:
    """Whether two wrong results differ by no more than rounding."""
    if timed is None:
        return False
    timed = timed.to(untimed.device).view(untimed.shape)
    return tolerance.passes(expected.around(timed.to(expected.reference64.dtype)), untimed)
