"""Finds the factor of an output of one element, such as a loss, by several draws."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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
from grader.grading.patterns.number_factor import Measured, agreed_factor, shown_factor
from grader.grading.patterns.pattern import Pattern


def constant_factor(
    candidate: Candidate, oracle: Oracle, case: Case, name: str, sealed: torch.Tensor
) -> Pattern | None:
    """The pattern of an output that is the same multiple of the reference's in every draw. Raises Stopped."""
    if sealed.numel() != 1 or not case.values_comparable or oracle.is_slow(case):
        return None

    def draws() -> Iterator[Measured]:
        yield sealed, case.outputs[name]
        for _ in range(OTHER_DRAWS):
            other = replace(case, inputs=tuple(oracle.models.draw(case.variant)[1]))
            yield outputs_of(candidate, other)[name], variations.outputs_of(oracle, other)[name]

    factor = agreed_factor(draws())
    if factor is None:
        return None
    plain = factor_text(factor).lstrip("-").removeprefix("1/").isdigit()
    ratio = None if plain else _of_extents(factor, case)
    shown, remedy = shown_factor(factor, case.outputs[name]), scale_remedy(factor)
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
