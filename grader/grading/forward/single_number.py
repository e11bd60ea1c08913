"""Finds the factor of an output of one element, such as a loss, by several draws."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch

from grader.grading.candidate.candidate import Candidate
from grader.grading.compare.scaling import ROUNDING_RESIDUAL, factor_text, scale_remedy
from grader.grading.forward.one_forward import outputs_of
from grader.grading.messages import in_backticks
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import OTHER_DRAWS
from grader.grading.patterns.named_factor import factor_of
from grader.grading.patterns.pattern import Pattern


def constant_factor(
    candidate: Candidate, oracle: Oracle, case: Case, name: str, sealed: torch.Tensor
) -> Pattern | None:
    """The pattern of an output that is the same multiple of the reference's in every draw. Raises Stopped.

    An error that is not proportional to the reference's number, such as a term left out, changes the factor by as much
    as the number varies from draw to draw: the factors must agree far better than that.
    """
    right = case.outputs[name].reference64
    factor = factor_of(sealed, right) if sealed.numel() == 1 and case.values_comparable else None
    if factor is None or abs(factor - 1) < ROUNDING_RESIDUAL or oracle.is_slow(case):
        return None
    for _ in range(OTHER_DRAWS):
        other = replace(case, inputs=tuple(oracle.models.draw(case.variant)[1]))
        due = variations.outputs_of(oracle, other)[name].reference64
        found = factor_of(outputs_of(candidate, other)[name], due)
        varies = abs(float(due) / float(right) - 1)
        if found is None or abs(found - factor) > min(ROUNDING_RESIDUAL * abs(factor), varies * abs(factor - 1) / 10):
            return None
    ratio = _of_extents(factor, case)
    shown, remedy = factor_text(factor), scale_remedy(factor)
    if ratio is not None:
        shown, remedy = f"{shown} ({ratio})", "divide by as many as the reference's mean does"
    return Pattern(f"is {shown} times the reference's in {1 + OTHER_DRAWS} draws", remedy)


def _of_extents(factor: float, case: Case) -> str | None:
    """The factor as a ratio of two extents of the inputs, such as "12/40, extents of `x`"."""
    extents: dict[int, str] = {}
    for index, value in enumerate(case.inputs):
        for extent in value.shape if isinstance(value, torch.Tensor) else ():
            extents.setdefault(extent, case.operand_names.get(f"input[{index}]", f"input[{index}]"))
    for above, below in itertools.permutations(extents, 2):
        if abs(above / below - factor) < ROUNDING_RESIDUAL * factor:
            return f"{above}/{below}, extents of {in_backticks(list(dict.fromkeys((extents[above], extents[below]))))}"
    return None
