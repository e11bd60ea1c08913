"""The tolerance for tensors of 16 bits, where one rounding changes an element by up to 0.4%.

There the error of eager PyTorch is that of rounding its results, and a factor of four would hide real faults. A right
kernel rounds as often as eager PyTorch, or less: with the baseline error that of eager PyTorch or of the exact values
rounded once, whichever is larger, half the factors suffice. Rounding has no direction, so the part of the error along
the reference may not exceed one rounding.
"""

from __future__ import annotations

import math

import torch

from grader.grading.compare.blocks import in_blocks
from grader.grading.compare.nonsmooth import MIN_ELEMENTS


def is_narrow(dtype: torch.dtype) -> bool:
    """Whether it is a floating type of 16 bits or less."""
    return dtype.is_floating_point and dtype.itemsize < torch.float32.itemsize


def share(dtype: torch.dtype) -> float:
    """The part of the baseline factors that applies: a right kernel rounds to a narrow type as often."""
    return 0.5 if is_narrow(dtype) else 1.0


def spacing(dtype: torch.dtype) -> float:
    """Relative distance of adjacent numbers of a narrow type: two roundings of one element; 0 for others."""
    return torch.finfo(dtype).eps if is_narrow(dtype) else 0.0


def two_roundings(dtype: torch.dtype) -> float:
    """The largest relative RMS of two roundings to a narrow type; 0 for others.

    Each has at most spacing / sqrt(12), as numbers between two neighbours are evenly distributed.
    """
    return spacing(dtype) / math.sqrt(6)


def rounded_once(reference64: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """The exact values in a narrow type; none for other types, in which rounding once says nothing."""
    return [reference64.to(dtype)] if is_narrow(dtype) else []


def along_of(run: torch.Tensor, reference64: torch.Tensor) -> float:
    """The size of the a for which a * reference64 is nearest to a narrow run's error.

    Over the elements that are finite in both; 0 for less than MIN_ELEMENTS of them.
    """
    if not is_narrow(run.dtype):
        return 0.0
    total = torch.zeros(3, dtype=torch.float64, device=run.device)
    for value, right in in_blocks(run, reference64.to(run.device)):
        exact, actual = right.double(), value.double()
        finite = exact.isfinite() & actual.isfinite()
        exact = exact.where(finite, 0.0)
        error = actual.where(finite, exact) - exact
        total += torch.stack([(error * exact).sum(), exact.square().sum(), finite.sum()])
    product, square, count = total.tolist()
    return abs(product) / max(square, torch.finfo(torch.float64).tiny) if count >= MIN_ELEMENTS else 0.0


def keeps_scale(candidate: torch.Tensor, reference64: torch.Tensor, error_along: float) -> bool:
    """Rule 4, for eager runs with `error_along`; of wider types nothing is asked."""
    return along_of(candidate, reference64) <= spacing(candidate.dtype) / 2 + 2 * error_along
