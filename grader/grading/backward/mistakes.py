"""Known mistakes behind a wrong gradient: the reference, made to make them, gives what the candidate gave."""

from __future__ import annotations

from typing import Literal

import torch

from grader.grading.backward.vjp import Product, ask, product
from grader.grading.candidate import Candidate, names
from grader.grading.compare import known_mistakes, tolerance
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis

LOOKALIKES: tuple[tuple[Literal["no_detach", "gelu_tanh", "gelu_erf"], str, str], ...] = (
    (
        "no_detach",
        "ignores_detach",
        "that of the reference without its detach(): treat the detached copy as a constant",
    ),
    (
        "gelu_tanh",
        "gelu_tanh_for_erf",
        "that of GELU's tanh approximation: differentiate the erf form, Phi(x) + x phi(x)",
    ),
    ("gelu_erf", "gelu_erf_for_tanh", "that of GELU's exact erf form: differentiate the tanh approximation"),
)


def explain_by_known_mistake(oracle: Oracle, case: Case, found: Product) -> list[Diagnosis]:
    """The first that fits, for a product that is wrong."""
    wrong = {
        name: value for name, value in found.gradients.items() if value is not None and _is_wrong(case, name, value)
    }
    if not wrong or not case.values_comparable:
        return []
    for substitute, code, said in LOOKALIKES:
        expected = known_mistakes.gradients(oracle, case, substitute)
        alike = [
            name
            for name, value in wrong.items()
            if name in expected and tolerance.check(expected[name], value).status == "passed"
        ]
        if alike:
            shown = [case.operand_names[name] for name in alike]
            return [diagnose(code, _subject(shown) + said + _where(case), stage="backward", detail={"operands": shown})]
    return _rounded(case, wrong)


def _rounded(case: Case, wrong: dict[str, torch.Tensor]) -> list[Diagnosis]:
    for name, value in wrong.items():
        for dtype in (torch.bfloat16, torch.float16):
            if (
                value.is_floating_point()
                and torch.equal(value.to(dtype).float(), value)
                and bool((value != value.round()).any())
            ):
                narrow = str(dtype).removeprefix("torch.")
                message = f"gradient of `{case.operand_names[name]}` was rounded to {narrow}: compute it in float32"
                return [diagnose("low_precision", message + _where(case), stage="backward")]
    return []


def right_for_ones(candidate: Candidate, oracle: Oracle, case: Case) -> list[Diagnosis]:
    """Linear in grad_output and yet wrong, but right where all its elements are equal: it reads one, or their mean."""
    if not case.values_comparable:
        return []
    given = case.cotangents.items()
    ones = {name: torch.full_like(value, 1 + 1j if value.is_complex() else 1) for name, value in given}
    expected = known_mistakes.gradients(oracle, case, "none", ones)
    finding = candidate.attempt(
        ask(candidate, case, cotangents=ones), "backward", "backward with a grad_output of ones"
    )
    if not expected or finding.failure is not None:
        return []
    for name, gradient in product(candidate, case, finding).gradients.items():
        if case.gradients[name] is None and gradient is not None and bool(gradient.any()):
            return []
        if name in expected and (gradient is None or tolerance.check(expected[name], gradient).status == "failed"):
            return []
    message = (
        "the gradients are right for a grad_output of ones and wrong for any other: multiply by each element of "
        "grad_output, not by its mean or its first element"
    )
    return [diagnose("ignores_grad_output", message + _where(case))]


def _is_wrong(case: Case, name: str, value: torch.Tensor) -> bool:
    expected = case.gradients[name]
    if expected is None:
        return bool(value.any())
    return tolerance.check(expected, value).status == "failed"


def _subject(shown: list[str]) -> str:
    return f"the gradient of {names(shown)} is " if len(shown) == 1 else f"the gradients of {names(shown)} are "


def _where(case: Case) -> str:
    return f" (variant {case.name})"
