"""Bounds the error that rounding may cause near a non-smooth point or a tie, element by element.

If a value lies within rounding of a non-smooth point, such as 0 for LeakyReLU, or if two values tie for a maximum, two
correct results may take different branches. In a small case, this happens to one element in some thousand draws, so the
few runs behind the baseline error seldom contain the branch that a candidate takes. Runs on inputs moved by more
than rounding do contain it, and only the elements that it affects vary more than the others.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

from grader.grading.compare.blocks import LARGE_BYTES, kth_smallest, wide

PERTURBATION_ULPS = 8.0
"""Relative rounding of a long chain of operations, in units of float32's epsilon. The runs behind the baseline error
get this noise on inputs and parameters. A choice: one of them then takes a branch that a candidate's rounding may
take."""
ULPS = 64.0
"""Relative noise on inputs and parameters in the runs behind the spread, in units of float32's epsilon: Winograd
convolutions round ten times as much as a direct sum."""
RUNS = (4, 16)
"""Runs behind the spread: few, and all. A branch that a candidate's rounding may take is taken by one of all with near
certainty. Few explain most right results, and more runs explain more."""
MOST_RUNS = max(RUNS)
BASELINE_ERRORS = ULPS / PERTURBATION_ULPS
"""Size of the spread in units of the baseline error, where the reference is smooth."""
OUTLIER = 1.5
"""An element is near a non-smooth point if its spread, relative to the rounding allowed in it, exceeds the median of
the tensor by this factor. The factor can be small because an error in all elements shows in the other half."""
FACTOR = 4.0
"""Allowed error near a non-smooth point, relative to the spread: two branches may meet in one element."""
MIN_ELEMENTS = 64
"""With fewer elements, one non-smooth point may affect all, and a median or a share of the elements says nothing."""
MAX_ELEMENTS = LARGE_BYTES // torch.complex128.itemsize
"""With more elements, each draw has some near non-smooth points, so that the baseline error contains them. Tensors that
wait in host memory have at least as many, at 16 bytes an element at most."""


class Spread(Protocol):
    """Returns the largest error of perturbed runs for each element, in float64. Makes them when called."""

    def __call__(self, runs: int = MOST_RUNS) -> torch.Tensor: ...


def absolute_error(run: torch.Tensor, reference64: torch.Tensor) -> torch.Tensor:
    """|run - reference64| in float64, 0 where either is not finite; for integers 1 where they differ."""
    if not (reference64.dtype.is_floating_point or reference64.dtype.is_complex):
        return (run != reference64).double()
    return (wide(run) - wide(reference64)).abs().nan_to_num(0.0, 0.0, 0.0)


def most_are_wrong(error: torch.Tensor, bound: float) -> bool:
    """Whether any half of the elements alone exceeds the bound on the norm.

    Non-smooth points cannot explain that. Three quarters of the elements have an error of at least the first quartile,
    so in any half of all elements, a quarter of all has.
    """
    flat = error.reshape(-1)
    if len(flat) < MIN_ELEMENTS:
        return False
    quartile = float(kth_smallest(flat, len(flat) // 4))
    return quartile * math.sqrt(len(flat) / 4) > bound


def allowance(spread: torch.Tensor, rounding: torch.Tensor) -> torch.Tensor:
    """The error that a non-smooth point may add to each element; 0 for the elements that none affects.

    `rounding` is the error allowed in each element elsewhere.
    """
    share = spread / rounding.clamp_min(torch.finfo(torch.float64).tiny)
    least = OUTLIER * float(share.median()) if share.numel() >= MIN_ELEMENTS else 1.0
    return torch.where(share > least, FACTOR * spread, 0.0)
