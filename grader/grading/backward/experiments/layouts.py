"""Experiments on memory layouts: of grad_output expanded, transposed and sliced, of inputs strided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import torch

from grader.executor.job import CotangentLayout, expandable_axis
from grader.grading.backward.experiments._base import (
    ExperimentCases,
    changed_operands,
    experiment,
    first_wrong,
    plain_is_right,
)
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_output
from grader.grading.candidate.vjp import Answer, attempt_each, one_product, product, product_job
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import is_large
from grader.grading.messages import diagnose, first_line
from grader.grading.oracle.case import Case, export_outputs
from grader.verdict.models import Diagnosis

LAYOUTS: tuple[tuple[CotangentLayout, bool], ...] = (
    ("contiguous", True),
    ("expanded", True),
    ("contiguous", False),
    ("transposed", False),
    ("sliced", False),
)
"""Layouts of grad_output, and whether it repeats along a dimension; behind a contiguous one, others of its values."""
OTHER_LAYOUT = "backward with a grad_output of another layout"
CONTIGUOUS = "call grad_output.contiguous() before view() or data_ptr()"
CONTIGUOUS_INPUT = "save x.contiguous() for the backward, or call .contiguous() there before view() or data_ptr()"


@experiment(
    "assumes_contiguous_grad_output",
    question="The same grad_output in other memory layouts gives the same gradients.",
    remedy=CONTIGUOUS,
    rank=50,
    explains=True,
    weight=4,
)
def assumes_contiguous_grad_output(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    if not plain_is_right(candidate, cases.first):
        return _wrong_layout_inside(candidate, cases.first)
    questions = [
        one_product(candidate, mode.first, layout=layout, cotangents=_given(mode.first, repeated))
        for mode in cases.modes
        for layout, repeated in LAYOUTS
    ]
    answers = attempt_each(candidate, questions, OTHER_LAYOUT)
    return cases.in_each_mode(lambda mode: _wrong_for_a_layout(candidate, mode.first, islice(answers, len(LAYOUTS))))


@experiment(
    "assumes_contiguous_input",
    question="Strided inputs, with NaN between elements, give the same gradients where they give the same outputs.",
    remedy=CONTIGUOUS_INPUT,
    rank=55,
    train_only=True,
)
def assumes_contiguous_input(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    case = cases.first
    if case.clone_inputs or any(map(is_large, case.inputs)) or not plain_is_right(candidate, case):
        return None
    job = product_job(candidate, case, strided_inputs=True)
    export_outputs(job, case, "a")
    result = candidate.attempt(job, "backward", "backward of inputs that are not contiguous")
    if result.failure is not None:  # the forward was asked by itself
        return None
    if any(check_output(case, result, name).status == "failed" for name in case.outputs):
        return None
    operand = first_wrong(candidate, case, result)
    if operand is None:
        return None
    what = f"gradient of `{operand}` is right for contiguous inputs and wrong for strided ones, where outputs are right"
    return diagnose("assumes_contiguous_input", what, stage="backward", remedy=CONTIGUOUS_INPUT)


def _given(case: Case, repeated: bool) -> Mapping[str, torch.Tensor]:
    """The grad_output, or its first row in place of all others, so that it can be expanded."""
    return {name: _first_repeated(value) for name, value in case.cotangents.items()} if repeated else case.cotangents


def _first_repeated(value: torch.Tensor) -> torch.Tensor:
    axis = expandable_axis(value.shape)
    return value if axis is None else value.narrow(axis, 0, 1).expand(value.shape)


def _wrong_for_a_layout(candidate: Candidate, case: Case, answers: Iterable[Answer]) -> Diagnosis | None:
    """A diagnosis of the first layout that raises, or gives other gradients than the same values contiguous."""
    control: Answer | None = None
    for (layout, repeated), answer in zip(LAYOUTS, answers, strict=False):
        which = f"an {layout}" if layout == "expanded" else f"a {layout}"
        if layout == "contiguous":
            control = answer
        elif answer.result.failure is not None:
            what = f"backward raises {first_line(answer.result.failure)} for {which} grad_output"
            return diagnose("assumes_contiguous_grad_output", what, remedy=CONTIGUOUS)
        elif control is not None and (operand := _wrong_operand(candidate, case, repeated, answer, control)):
            return diagnose(
                "assumes_contiguous_grad_output",
                f"gradient of `{operand}` is right for a contiguous grad_output and wrong for {which} one",
                remedy=CONTIGUOUS,
                detail={"layout": layout},
            )
    return None


def _wrong_operand(candidate: Candidate, case: Case, repeated: bool, answer: Answer, control: Answer) -> str | None:
    """Display name of an operand whose gradient changes with the layout, by more than a right one may.

    The reference has no gradients for a repeated grad_output. There, the change must show twice, since a forward that
    adds in any order may take either branch of a non-smooth point.
    """
    if not repeated:
        changed = changed_operands(candidate, case, answer, control)
        return first_wrong(candidate, case, answer.result, key=answer.key, only=changed) if changed else None
    wrong = _unlike(candidate, case, answer, control)
    if wrong:
        given = _given(case, repeated)
        questions = [
            one_product(candidate, case, layout=layout, cotangents=given) for layout, repeats in LAYOUTS if repeats
        ]
        again = list(attempt_each(candidate, questions, OTHER_LAYOUT))
        if again[-1].result.failure is None:
            wrong = [name for name in _unlike(candidate, case, again[1], again[0]) if name in wrong]
    return case.operand_names[wrong[0]] if wrong else None


def _unlike(candidate: Candidate, case: Case, answer: Answer, control: Answer) -> list[str]:
    """Names of the operands whose gradients are neither the control's nor as near to it as the tolerance allows."""
    ours, plain = (product(candidate, case, *one).gradients for one in (answer, control))

    def is_near(name: str) -> bool:
        expected, one, other = case.gradients[name], ours[name], plain[name]
        if expected is None or one is None or other is None:
            return expected is None
        return tolerance.passes(expected.around(other), one)

    return [name for name in changed_operands(candidate, case, answer, control) if not is_near(name)]


def _wrong_layout_inside(candidate: Candidate, case: Case) -> Diagnosis | None:
    """Wrong even for a contiguous grad_output, since an operation in between passes on another layout."""
    doing = "backward with contiguous gradients inside"
    result = candidate.attempt(product_job(candidate, case, contiguous_grads=True), "backward", doing)
    if result.failure is not None or first_wrong(candidate, case, result) is not None:
        return None
    return diagnose(
        "assumes_contiguous_grad_output",
        "the gradients are wrong as the operations behind the fused one hand grad_output over, and right once it is "
        "made contiguous for each function",
        remedy=CONTIGUOUS,
        detail={"layout": "inside"},
    )
