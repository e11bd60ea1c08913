"""The experiment on the outputs that are used: one of several alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from grader.grading.backward.experiments._base import ExperimentCases, experiment, first_wrong
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import Answer, attempt_each, one_product, product
from grader.grading.compare import tolerance
from grader.grading.messages import diagnose, first_line
from grader.grading.oracle.case import Case
from grader.verdict.models import Diagnosis


@experiment(
    "undefined_grad_output",
    question="Each of several outputs can be used alone, and the gradients add up to those of all together.",
    remedy="treat the grad_output of an unused output as zero",
    rank=90,
)
def undefined_grad_output(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    outputs = list(cases.first.cotangents)
    if len(outputs) < 2:
        return None
    questions = [
        one_product(candidate, mode.first, cotangents={name: mode.first.cotangents[name]})
        for mode in cases.modes
        for name in outputs
    ]
    answers = attempt_each(candidate, questions, "backward through one of several outputs")

    def wrong(mode: ExperimentCases) -> Diagnosis | None:
        ours = dict(zip(outputs, answers, strict=False))
        return _wrong_in_sum(candidate, mode.first, ours) or _wrong_alone(candidate, mode.alone(mode.first), ours)

    return cases.in_each_mode(wrong)


def _wrong_alone(candidate: Candidate, alone: Mapping[str, Case], answers: Mapping[str, Answer]) -> Diagnosis | None:
    """A diagnosis of the products through each output alone, of which a small one does not show in the sum."""
    for output, case in alone.items():
        operand = first_wrong(candidate, case, answers[output].result, key=answers[output].key)
        if operand is not None:
            what = f"the gradient of `{operand}` is wrong when only {output} is used"
            remedy = f"add the term of {output}'s grad_output once, whatever the others are"
            return diagnose("undefined_grad_output", what, remedy=remedy)
    return None


def _wrong_in_sum(candidate: Candidate, case: Case, answers: Mapping[str, Answer]) -> Diagnosis | None:
    """A diagnosis of the sum of the products through each output alone, up to the first that raised."""
    remedy = "treat the grad_output of the others as zero; it may be None"
    total: dict[str, torch.Tensor] = {}
    for name, answer in answers.items():
        failure = answer.result.failure
        if failure is not None:
            what = f"backward through {name} alone raises {first_line(failure)}"
            return diagnose("undefined_grad_output", what, remedy=remedy)
        for operand, gradient in product(candidate, case, *answer).gradients.items():
            if gradient is not None:
                total[operand] = total[operand] + gradient if operand in total else gradient
    for operand, expected in case.gradients.items():
        if expected is None:
            continue
        missing = operand not in total
        if missing and not expected.is_zero:
            text = "None"
        elif not missing and not tolerance.passes(expected, total[operand]):
            text = "wrong"
        else:
            continue
        what = f"the gradient of `{case.operand_names[operand]}` is {text} when only one of the outputs is used"
        return diagnose("undefined_grad_output", what, remedy=remedy)
    return None
