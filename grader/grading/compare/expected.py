"""The reference's values and tolerance for one tensor. `tolerance` has the rule that judges by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from grader.grading.compare import narrow_types, nonsmooth, small_elements, ties
from grader.grading.compare.blocks import norm, norms_each

EPSILON = torch.finfo(torch.float32).eps
"""Spacing of float32 at 1: 2^-23."""
ELEMENT_TOLERANCE = 1e-5
"""Relative rounding error of a short chain of float32 operations in one element: 84 times EPSILON. A choice."""
ROUNDING_UNITS = 32.0
"""Rounding that any chain of operations may accumulate, in units of EPSILON, relative to the norm. A choice."""
COARSE_TOLERANCE = 1e-4
"""Tolerance of an element that no model of rounding covers, as without a float64 reference. A choice."""


@dataclass(frozen=True)
class Expected:
    """The reference's values and tolerance for one tensor. Never sent to a candidate."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    """The dtype of the float32 run, which the candidate must return."""
    reference64: torch.Tensor
    """The float64 result, in float32 for a large tensor; the float32 result for integers or without float64."""
    error_l2: float = 0.0
    """||E_e||, the largest of the eager runs."""
    error_max: float = 0.0
    """max |E_e|, the largest of the eager runs."""
    error_along: float = 0.0
    """The part of E_e along the reference, relative to it, the largest of the eager runs; of 16 bits only."""
    reduction_length: float = 1.0
    """K."""
    ambiguous: torch.Tensor | None = None
    """Integers only: where the runs of the reference disagree."""
    overflows: torch.Tensor | None = None
    """Where the eager run is not finite and `reference64` is: a candidate may be either there."""
    infinite: torch.Tensor | None = None
    """Where the float64 run is infinite or NaN; None if it is nowhere. No gradient comes from there."""
    has_float64: bool = True
    spread: nonsmooth.Spread | None = None
    """For small tensors only. To call it runs the reference again, several times with noise (`oracle/spreads.py`)."""
    eager_error: Callable[[], torch.Tensor] | None = None
    """The error of the eager run in each element; where there is a spread."""
    ties: ties.Ties | None = None
    """Judged instead of the spread where elements of inputs are equal, by runs of the reference as well."""
    strict: bool = True
    """Whether the spread is computed for a tensor that passes, too: an error may hide behind the baseline error."""
    rounds_operands: bool = False
    """Whether the runs of the reference round operands to TensorFloat-32, those behind the spread included."""

    def around(self, reference64: torch.Tensor) -> Expected:
        """The same tolerance around other values, whose non-smooth points are elsewhere."""
        elsewhere = replace(self, spread=None, eager_error=None, ties=None, overflows=None, infinite=None)
        return replace(elsewhere, reference64=reference64)

    def without_values(self) -> Expected:
        """The same shape, norm and errors without values."""
        slim = replace(self.around(self.reference64.to("meta")), ambiguous=None, infinite=self.infinite)
        slim.__dict__["norm"] = self.norm
        slim.__dict__["ambiguous_count"] = self.ambiguous_count
        return slim

    @property
    def rounds(self) -> bool:
        """Whether its elements are rounded numbers, and no integers or booleans."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    @cached_property
    def ambiguous_count(self) -> int:
        """The number of elements in which the runs of the reference disagree."""
        return 0 if self.ambiguous is None else int(self.ambiguous.sum())

    @cached_property
    def norm(self) -> float:
        """The Euclidean norm over finite elements of `reference64`, in float64."""
        return norm(self.reference64)

    @cached_property
    def smooth(self) -> dict[int, tuple[torch.Tensor, float]]:
        """Elements away from non-smooth points and rule 2's bound for them, by runs behind the spread."""
        return {}

    @cached_property
    def on_host(self) -> torch.Tensor:
        """`reference64` in host memory."""
        return self.reference64.cpu()

    @property
    def is_zero(self) -> bool:
        """Whether it is zero, or would be without rounding: float64's is 2e-9 of float32's.

        Such is the gradient of a bias that a norm takes away again.
        """
        return self.infinite is None and self.norm <= 1e-6 * self.error_l2 < math.inf

    @cached_property
    def rms(self) -> float:
        """The root mean square of the reference."""
        return self.norm / math.sqrt(max(self.reference64.numel(), 1))

    @property
    def rounding(self) -> float:
        """Rounding that operations and the longest reduction behind it may add, relative to its norm."""
        return (ROUNDING_UNITS + math.sqrt(self.reduction_length)) * EPSILON

    @cached_property
    def slope(self) -> float:
        """The relative tolerance of rule 3, which applies to |G| + rms(G)."""
        spacing = narrow_types.spacing(self.dtype)
        if not self.has_float64:
            return COARSE_TOLERANCE + spacing
        return ELEMENT_TOLERANCE + EPSILON * math.sqrt(self.reduction_length) + spacing / 2

    @property
    def least(self) -> float:
        """The size up to which no element is judged by itself, since products on the way may underflow."""
        return small_elements.least_of(self.dtype)

    @cached_property
    def small_tolerated(self) -> float | None:
        """The relative error that counts of elements below the tolerance of rule 3; None if none does."""
        if self.spread is None or not self.rounds:
            return None
        share = 0.5 if narrow_types.is_narrow(self.dtype) else 10 * COARSE_TOLERANCE
        return small_elements.tolerated(self.reference64, self.slope * self.rms, share, least=self.least)

    @cached_property
    def least_judged(self) -> float | None:
        """The size from which on such elements are no noise; None if all are, or none is judged."""
        if self.spread is None or self.small_tolerated is None:
            return None
        small = self.slope * self.rms
        return small_elements.least_judged(self.reference64, self.spread, small=small, above=self.least)


def know_norms(each: Sequence[Expected]) -> None:
    """Compute the norms that are not known yet, those of small tensors together."""
    unknown = [one for one in each if "norm" not in vars(one)]
    for one, length in zip(unknown, norms_each([one.reference64 for one in unknown]), strict=True):
        vars(one)["norm"] = length
