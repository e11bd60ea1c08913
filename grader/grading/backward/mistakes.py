"""Explains a wrong gradient by a known mistake: the reference with that mistake gives the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch

from grader import protocol as p
from grader.grading.backward.experiments._base import wrong_operands
from grader.grading.backward.experiments.grad_outputs import alike_in_part
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import Product, gradients_of, product, product_job
from grader.grading.compare import tolerance
from grader.grading.compare.expected import Expected
from grader.grading.compare.scaling import ROUNDING_RESIDUAL, change
from grader.grading.messages import diagnose, in_backticks
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.patterns.rounded import confirmed_roundings
from grader.verdict.models import Diagnosis

LOOKALIKES: tuple[tuple[Literal["no_detach", "no_no_grad", "gelu_tanh", "gelu_erf"], str, str, str], ...] = (
    (
        "no_detach",
        "ignores_detach",
        "that of the reference without its detach()",
        "treat the detached copy as a constant",
    ),
    (
        "no_no_grad",
        "ignores_detach",
        "that of the reference without its no_grad()",
        "treat what is computed under no_grad() as a constant",
    ),
    (
        "gelu_tanh",
        "gelu_tanh_for_erf",
        "that of GELU's tanh approximation",
        "differentiate the erf form, Phi(x) + x phi(x)",
    ),
    (
        "gelu_erf",
        "gelu_erf_for_tanh",
        "that of GELU's exact erf form",
        "differentiate the tanh approximation",
    ),
)
"""A substitute in the reference, the code for a gradient that matches it, what that gradient is, and the remedy."""


def explain_by_known_mistake(oracle: Oracle, case: Case, actual: Product) -> list[Diagnosis]:
    """The first known mistake that explains a wrong product; empty if none does."""
    wrong = {
        name: value for name, value in actual.gradients.items() if value is not None and _is_wrong(case, name, value)
    }
    if not wrong or not case.values_comparable:
        return []
    for substitute, code, text, remedy in LOOKALIKES:
        expected = known_mistakes.gradients(oracle, case, substitute)
        matching = [
            case.operand_names[name]
            for name, value in wrong.items()
            if name in expected and tolerance.passes(expected[name], value)
        ]
        if matching:
            verb = "are" if len(matching) > 1 else "is"
            what = f"the gradient{'s' * (len(matching) > 1)} of {in_backticks(matching)} {verb} {text}"
            none = [case.operand_names[name] for name in wrong if case.gradients[name] is None and name in expected]
            if none:
                what += f"; the reference gives {in_backticks(none)} no gradient"
            detail = {"operands": matching}
            return [diagnose(code, what, where=case.where, remedy=remedy, stage="backward", detail=detail)]
    return _rounded(case, wrong)


def _rounded(case: Case, wrong: dict[str, torch.Tensor]) -> list[Diagnosis]:
    for name, value in wrong.items():
        if (expected := case.gradients[name]) is None:
            continue
        code, gradient = "low_precision", f"gradient of `{case.operand_names[name]}`"
        if (narrow := known_mistakes.rounded_to(value, expected)) is not None:
            what, remedy = f"{gradient} was rounded to {narrow}", "compute it in float32"
        elif (narrow := known_mistakes.left_unrounded(value, expected)) is not None:
            code, what = "grad_wrong", f"{gradient} is not rounded to {narrow}, as the reference's is"
            remedy = f"convert to {narrow} where the reference does"
        else:
            continue
        return [diagnose(code, what, where=case.where, remedy=remedy, stage="backward")]
    return []


def rounded_gradients(candidate: Candidate, oracle: Oracle, case: Case, actual: Product | None) -> list[Diagnosis]:
    """`low_precision` for gradients whose errors pass the tolerance, and follow those of a rounding."""
    again = partial(gradients_of, candidate)
    found = confirmed_roundings(oracle, case, "gradients", actual.gradients, again) if actual is not None else {}
    if not found:
        return []
    operands = [case.operand_names[name] for name in found]
    (_, pattern), *others = found.items()
    what = f"gradient of `{operands[0]}` {pattern}"
    if others:
        what += f"; so {'do' if len(others) > 1 else 'does'} {in_backticks(operands[1:])}"
    detail = {"operands": operands}
    return [diagnose(pattern.code, what, where=case.where, remedy=pattern.remedy, stage="backward", detail=detail)]


def changed_after_saving(candidate: Candidate, case: Case, actual: Product) -> list[Diagnosis]:
    """A tensor that changes after the forward has saved it, if the gradients depend on that.

    Raises Stopped.
    """
    job = product_job(candidate, case, change=p.SavedValues(keeps="copies"))
    result = candidate.attempt(job, "backward", "backward with copies of what the forward saved")
    if result.failure is not None or not (changed := result.of(p.Outputs)[0].changed):
        return []
    wrong = [name for name, value in actual.gradients.items() if value is not None and _is_wrong(case, name, value)]
    if _same(actual, product(candidate, case, result), wrong):
        return []
    right = next(wrong_operands(candidate, case, result), None) is None
    what = (
        f"the tensor {changed} for the backward changes in place afterwards without autograd knowing: with its values "
    )
    what += f"as saved, the gradients {'are right' if right else 'change'}"
    written = next((place for place in candidate.graph_ends.places if place.startswith("`.data`")), "")
    remedy = f"write into a new tensor, not through {written or '`.data` or a pointer'}"
    return [diagnose("saved_tensor_mutated", what, where=case.where, remedy=remedy)]


def right_for_ones(candidate: Candidate, oracle: Oracle, case: Case, actual: Product) -> list[Diagnosis]:
    """Gradients that are right only if all elements of grad_output are equal.

    The backward then reads one element, or their mean.

    Raises Stopped.
    """
    if not case.values_comparable:
        return []
    ones = {
        name: torch.full_like(value, 1 + 1j if value.is_complex() else 1) for name, value in case.cotangents.items()
    }
    expected = known_mistakes.gradients(oracle, case, "none", ones)
    doing = "backward with a grad_output of ones"
    result = candidate.attempt(product_job(candidate, case, cotangents=ones), "backward", doing)
    if not expected or result.failure is not None:
        return []
    wrong = [name for name, value in actual.gradients.items() if value is not None and _is_wrong(case, name, value)]
    if all(_is_rounding(case.gradients[name], actual.gradients[name]) for name in wrong):
        return []  # ones are exact in any type
    if not any(name in expected and _is_not_noise(expected[name]) for name in wrong):
        return []  # behind a norm, the gradient of a sum is 0 whatever the backward does
    if _leaves_an_output_out(oracle, case, actual, wrong):
        return []  # that of ones may be 0 there, as for probabilities, which sum to 1
    for_ones = product(candidate, case, result)
    for name, gradient in for_ones.gradients.items():
        if case.gradients[name] is None and gradient is not None and bool(gradient.any()):
            return []
        if name in expected and (gradient is None or not tolerance.passes(expected[name], gradient)):
            return []
    if all(value.numel() == 1 for value in case.cotangents.values()) and not _same(actual, for_ones, wrong):
        return []  # the gradients follow the only element, so that it is not ignored
    # An order of elements, as after a transpose, does not matter to ones either.
    doing = "backward with the elements of grad_output in another order"
    result = candidate.attempt(
        product_job(candidate, case, cotangents=alike_in_part(case.cotangents, case.seed)), "backward", doing
    )
    if result.failure is not None or not _same(actual, product(candidate, case, result), wrong):
        return []
    what = "the gradients are right for a grad_output of ones and wrong for any other"
    remedy = "multiply by each element of grad_output, not by its mean or its first element"
    return [diagnose("ignores_grad_output", what, where=case.where, remedy=remedy)]


def _leaves_an_output_out(oracle: Oracle, case: Case, actual: Product, wrong: Sequence[str]) -> bool:
    """Whether these gradients would be right if one output's grad_output were zero."""
    given = case.cotangents
    for left_out in given if len(given) > 1 else ():
        others = {name: value * (name != left_out) for name, value in given.items()}
        due = known_mistakes.gradients(oracle, case, "none", others)
        checks = [
            name in due and value is not None and tolerance.passes(due[name], value)
            for name in wrong
            for value in [actual.gradients[name]]
        ]
        if checks and all(checks):
            return True
    return False


def _is_wrong(case: Case, name: str, value: torch.Tensor) -> bool:
    expected = case.gradients[name]
    if expected is None:
        return bool(value.any())
    return not tolerance.passes(expected, value)


def _is_not_noise(expected: Expected) -> bool:
    """Whether the gradient is larger than the rounding of the runs that computed it."""
    return not tolerance.passes(expected, torch.zeros_like(expected.reference64, dtype=expected.dtype))


def _is_rounding(expected: Expected | None, value: torch.Tensor | None) -> bool:
    """Whether the error is no larger than rounding to bfloat16."""
    if expected is None or value is None:
        return False
    error = torch.linalg.vector_norm(value - expected.reference64.to(value))
    return float(error) <= torch.finfo(torch.bfloat16).eps * expected.norm


def _same(one: Product, other: Product, names: Sequence[str]) -> bool:
    """Whether these gradients of two products agree up to rounding."""
    for name in names:
        first, second = one.gradients[name], other.gradients[name]
        if first is None or second is None:
            return False
        if not change(first, second) <= ROUNDING_RESIDUAL:
            return False
    return True
