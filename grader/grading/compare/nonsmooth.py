"""What rounding explains of an error at a kink or a tie: which elements could be another's, and by how much.

Where a value is within rounding of LeakyReLU's kink, or two are within rounding of each other where the larger one is
taken, one of two right results may go the other way. Of a small case's elements that is one in some thousand draws, so
that no run of the baseline has the one that a candidate has. Many runs, on values moved by more, have it; only in the
elements that it touches do they differ by more than all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from grader.grading.oracle.large import LARGE_BYTES

RUNS = 16
"""What a candidate's rounding puts on a kink's other side, one in so many of them does too, with near certainty."""
ULPS = 64.0
"""By so much inputs and parameters are moved: Winograd's convolutions round ten times as much as a direct sum."""
OUTLIER = 1.5
"""Times the median difference of the same runs, relative to what rounding is allowed in an element. What is wrong
everywhere shows in the other half, so that this may be close."""
FACTOR = 4.0
"""Of the largest difference among the runs: two flips may meet in one element."""
FEW = 64
"""Elements all of which one kink may touch: of fewer, the median says nothing."""
MANY = LARGE_BYTES // 16
"""Elements, some of which are at a kink in every draw, and so in the baseline's too. What waits in the host's memory
has as many, at 16 bytes each at most."""
BASELINE_ERRORS = 8.0
"""The runs' differences are as many baseline_errors: the values of those were moved by an eighth of ULPS."""
SAMPLE = 1 << 20
"""Elements that stand for all."""

Spread = Callable[[], torch.Tensor]
"""Of each element, how far the farthest of RUNS is from what is exact; float64."""


def apart(run: torch.Tensor, reference64: torch.Tensor) -> torch.Tensor:
    """Of each element, how far it is from what is exact, in float64; 0 where one of both is not finite."""
    if not (reference64.dtype.is_floating_point or reference64.dtype.is_complex):
        return (run != reference64).double()
    wide = torch.complex128 if reference64.dtype.is_complex else torch.float64
    return (run.to(wide) - reference64.to(wide)).abs().nan_to_num(0.0, 0.0, 0.0)


def touch_too_few(error: torch.Tensor, bound: float) -> bool:
    """Kinks do not explain it: any half of the elements alone exceeds the bound on the norm.

    Three quarters are off by a quartile or more, and so is a quarter of all in any half.
    """
    sample = error.reshape(-1)[:: 1 + error.numel() // SAMPLE]
    if len(sample) < FEW:
        return False
    quartile = float(sample.kthvalue(len(sample) // 4).values)
    return quartile * math.sqrt(error.numel() / 4) > bound


def explained(spread: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """By how much a kink may move each element; 0 in all that it does not touch. `allowed`: of rounding alone."""
    share = spread / allowed.clamp_min(torch.finfo(torch.float64).tiny)
    least = OUTLIER * float(share.median()) if share.numel() >= FEW else 1.0
    return torch.where(share > least, FACTOR * spread, 0.0)
