"""Finds references whose float32 gradients are rounding noise, so that values decide nothing.

For example, a norm over two values gives 1 and -1 whatever they are, and its derivative depends on their last digits.
Behind several of those, float32 gradients are off by their own size, from one order of sums to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from grader.grading.compare.expected import EPSILON, Expected, know_norms
from grader.grading.compare.tolerance import BASELINE_FACTOR_L2
from grader.grading.oracle.case import Case


def ill_posed(case: Case, modes_differ: Callable[[str], bool]) -> str | None:
    """The share of the gradients that rounding decides, if it decides most of them; None if it does not.

    None too if train() and eval() do not differ for the variant: a missing backward would show in neither. Random
    numbers and ties, which decide as much, have rules of their own.
    """
    if not case.values_comparable:
        return None
    gradients = [expected for expected in case.gradients.values() if expected is not None and expected.has_float64]
    know_norms(gradients)
    noise = sum(map(_is_noise, gradients))
    if 2 * noise <= len(gradients) or not modes_differ(case.variant):
        return None
    return f"in float32, {noise} of its {len(gradients)} gradients are off by about their own size, by rounding alone"


def _is_noise(expected: Expected) -> bool:
    """Whether zeros would pass, though float64 has other values.

    Values far below float32's errors are zeros, and another gradient is wrong there.
    """
    error, size = expected.error_l2, expected.norm
    return expected.ties is None and BASELINE_FACTOR_L2 * error >= size >= math.sqrt(EPSILON) * error > 0
