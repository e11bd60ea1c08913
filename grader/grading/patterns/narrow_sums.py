"""Whether an error is that of long sums that were kept in 16 bits."""

from __future__ import annotations

import math

import torch

from grader.grading.compare.narrow_types import is_narrow, spacing
from grader.grading.patterns.pattern import FREE, Pattern, Subject, norm, number


def accumulated(subject: Subject) -> Pattern | None:
    """The error of a long sum that was kept in the 16-bit type of its result.

    It is in more than a quarter of the elements: where an activation ends in zeros, half of them have none.
    """
    dtype, length = subject.expected.dtype, subject.expected.reduction_length
    size, count = norm(subject.right), subject.right.numel()
    if not is_narrow(dtype) or length < FREE * FREE or count < FREE * FREE or not size:
        return None
    relative, unit = subject.size / size, spacing(dtype) / 2
    upper_quartile = float(subject.error.abs().flatten().kthvalue(count - count // 4).values)
    spread_out = upper_quartile > 0.2 * subject.size / math.sqrt(count)
    if not spread_out or not unit / 4 < relative < unit * math.sqrt(length) or not _patternless(subject.error):
        return None
    name = str(dtype).removeprefix("torch.")
    text = f"has the error of sums that are kept in {name} (relative {number(relative)}), without a pattern"
    return Pattern(text, "accumulate in float32, and round once at the end", "low_precision")


def _patternless(error: torch.Tensor) -> bool:
    """Whether the error averages out along each dimension, as rounding does."""
    whole = norm(error)
    for dim, extent in enumerate(error.shape):
        if extent >= FREE and math.sqrt(extent) * norm(error.mean(dim)) > 0.7 * whole:
            return False
    return True
