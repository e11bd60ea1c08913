"""The factor of a tensor of one element, such as a loss or the gradient of a gain, by several draws."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from grader.grading.compare.expected import Expected
from grader.grading.compare.narrow_types import is_narrow, spacing
from grader.grading.compare.scaling import ROUNDING_RESIDUAL, factor_text
from grader.grading.patterns.named_factor import factor_of
from grader.grading.patterns.pattern import FREE

Measured = tuple[torch.Tensor | None, Expected]
"""A number beside the right one, in one draw."""


def agreed_factor(measured: Iterable[Measured]) -> float | None:
    """The factor that is the same in every draw, with the digits that rounding leaves; None without one.

    An error that is not proportional to the right number, such as a term left out, changes the factor by as much as
    that number varies from draw to draw: in one draw at least, far more than rounding does.
    """
    first: tuple[float, float] | None = None
    allowed, telling, narrow = 0.0, False, False
    draws = list(measured)
    # A draw shows few errors of one number, and terms that cancel leave a small number as large an error as another.
    error = max((expected.error_l2 for _, expected in draws), default=0.0)
    for ours, expected in draws:
        factor, due = factor_of(ours, expected.reference64), float(expected.reference64)
        if factor is None or not math.isfinite(factor):
            return None
        narrow = is_narrow(expected.dtype)
        allowed = max(allowed, _rounding(expected, error) * abs(factor))
        before, right = first = first or (factor, due)
        if abs(factor - before) > allowed or abs(before - 1) <= allowed:
            return None
        telling |= abs(due / right - 1) * abs(before - 1) > FREE * allowed
    if first is None or not telling:
        return None
    return _settled(first[0], allowed) if narrow else first[0]


def shown_factor(factor: float, expected: Expected) -> str:
    """The factor for a message: in 16 bits, "about" so much."""
    return f"{'about ' if is_narrow(expected.dtype) else ''}{factor_text(factor)}"


def _rounding(expected: Expected, error: float) -> float:
    """How much rounding changes the factor, relative to it, where it changes the number by this `error`."""
    if not is_narrow(expected.dtype):
        return ROUNDING_RESIDUAL
    return spacing(expected.dtype) + error / max(expected.norm, 1e-300)


def _settled(factor: float, allowed: float) -> float:
    """The whole number, or the inverse of one, that it is up to rounding; else the number with the digits known."""
    whole, below = round(factor), round(1 / factor) if factor else 0
    if whole and abs(factor - whole) <= allowed < 0.5:
        return whole
    # Relative to the factor, its inverse is off by as much.
    if below and abs(1 / factor - below) * abs(factor) <= allowed / abs(factor) < 0.5 / abs(below):
        return 1 / below
    digits = max(1, round(-math.log10(allowed / abs(factor)))) if factor else 1
    return float(f"{factor:.{digits}g}")
