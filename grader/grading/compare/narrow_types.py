"""The tolerance for tensors of 16 bits, where one rounding changes an element by up to 0.4%.

There the error of eager PyTorch is that of rounding its results, and a factor of four would hide real faults. A right
kernel rounds as often as eager PyTorch, or less: with the baseline error that of eager PyTorch or of the exact values
rounded once, whichever is larger, half the factors suffice. Rounding has no direction, so the part of the error along
the reference may not exceed one rounding.
"""

from __future__ import annotations

import torch

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


def along(error: torch.Tensor, reference64: torch.Tensor) -> float:
    """The a for which a * reference64 is nearest to the error; 0 for less than MIN_ELEMENTS elements."""
    if error.numel() < MIN_ELEMENTS:
        return 0.0
    size = torch.linalg.vector_norm(reference64).square()
    return float((error * reference64).sum() / size.clamp_min(torch.finfo(torch.float64).tiny))


def rounded_once(reference64: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """The exact values in a narrow type; none for other types, in which rounding once says nothing."""
    return [reference64.to(dtype)] if is_narrow(dtype) else []


def along_of(run: torch.Tensor, reference64: torch.Tensor) -> float:
    """The size of `along` of a narrow run's error, over the elements that are finite in both."""
    if not is_narrow(run.dtype):
        return 0.0
    exact = reference64.to(run.device).double()
    finite = exact.isfinite() & run.isfinite()
    return abs(along((run.double() - exact)[finite], exact[finite]))


def keeps_scale(candidate: torch.Tensor, reference64: torch.Tensor, error_along: float) -> bool:
    """Rule 4, for eager runs with `error_along`; of wider types nothing is asked."""
    return along_of(candidate, reference64) <= spacing(candidate.dtype) / 2 + 2 * error_along
