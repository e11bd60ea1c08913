"""Names the factor by which a tensor is off: a scalar of the model or an input, or a function of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from grader.errors import ReferenceRefused
from grader.grading.compare.scaling import ROUNDING_RESIDUAL, scale_of
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import is_float
from grader.grading.patterns.pattern import Pattern

FUNCTIONS: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("{}", torch.clone),
    ("{}^2", torch.square),
    ("exp({})", torch.exp),
    ("sigmoid({})", torch.sigmoid),
    ("tanh({})", torch.tanh),
)
"""What models multiply by: a scalar or a function of it. The square is what multiplying instead of dividing leaves."""

Factors = Mapping[str, float | None]
"""How many times the right one each tensor is; None where it is no multiple."""


def named_factors(oracle: Oracle, case: Case, factors: Factors, again: Callable[[Case], Factors]) -> dict[str, Pattern]:
    """The patterns, by name, of tensors whose factor is a function of one scalar of the case.

    It counts if the factor follows the scalar: `again` measures the factors in a case with another value. A pattern's
    text follows "2.3 times the reference's". Raises Stopped.
    """
    found: dict[str, Pattern] = {}
    left = {name: factor for name, factor in factors.items() if factor is not None}
    if not left or not case.values_comparable or oracle.is_slow(case):
        return found
    for scalar, label in _scalars(case):
        value = case.operand(scalar)
        forms = list(_forms(label, value))
        if not any(form.gives(factor) for form in forms for factor in left.values()):
            continue
        # Far beyond rounding, within any range that contains 0 and the scalar, and not near a power of common factors.
        moved = value * 0.83
        try:
            then = again(case.with_operand(scalar, moved))
        except ReferenceRefused:
            continue
        for before, after in zip(forms, _forms(label, moved), strict=True):
            for name, factor in left.items():
                if name not in found and before.gives(factor) and after.gives(then.get(name)):
                    found[name] = before.pattern
    return found


def factor_of(actual: torch.Tensor | None, right: torch.Tensor) -> float | None:
    """The factor a in actual = a * right, also of two single numbers; None if there is none."""
    if actual is None or actual.is_complex() or not bool(actual.isfinite().all()):
        return None
    if right.numel() != 1:
        return scale_of(actual, right)
    due = float(right)
    return float(actual) / due if due else None


def _scalars(case: Case) -> Iterator[tuple[str, str]]:
    """The names of tensors with one floating-point element, and their names in messages."""
    inputs = {f"input[{index}]": value for index, value in enumerate(case.inputs)}
    for name, value in (*case.state.items(), *inputs.items()):
        if is_float(value) and value.numel() == 1 and float(value):
            yield name, case.operand_names.get(name, name)


class _Form(NamedTuple):
    """A function of a scalar, and the pattern of what is wrong by it as a factor."""

    value: float
    pattern: Pattern

    def gives(self, factor: float | None) -> bool:
        return factor is not None and abs(self.value - factor) < ROUNDING_RESIDUAL * abs(factor)


def _forms(label: str, scalar: torch.Tensor) -> Iterator[_Form]:
    """Each function of a scalar, and its inverse."""
    exact = scalar.detach().cpu().double().reshape(())
    for shown, function in FUNCTIONS:
        called, value = shown.format(f"`{label}`"), float(function(exact))
        for inverse in (False, True):
            text = f"which is {'1 / ' if inverse else ''}{called}"
            remedy = f"multiply by {called}" + (", or divide by it once less" if inverse else " once less")
            if shown == "{}^2":
                wrong, right = ("divides", "multiplies") if inverse else ("multiplies", "divides")
                remedy = f"look where it {wrong} by `{label}` and the reference {right}, or for its square"
            factor = math.inf if inverse and not value else 1 / value if inverse else value
            yield _Form(factor, Pattern(text, remedy))
