"""Finds references whose float32 gradients are rounding noise, so that values decide nothing.

For example, a norm over two values gives 1 and -1 whatever they are, and its derivative depends on their last digits.
Behind several of those, float32 gradients are off by their own size, from one order of sums to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping
from dataclasses import replace

from grader.grading.compare.expected import EPSILON, Expected, know_norms
from grader.grading.compare.tolerance import BASELINE_FACTOR_L2
from grader.grading.oracle.case import Case

Place = tuple[str, bool]
"""Variant, and whether it is in train()."""


def set_apart(
    case: Case,
    no_backward: MutableMapping[Place, str],
    noise: MutableMapping[Place, Case],
    modes_differ: Callable[[str], bool],
) -> Case:
    """The case without gradients that rounding decides; the reason and they are kept by its place.

    What another size in its mode has no gradients for is true for this one too.
    """
    place = case.variant, case.training
    known = next((reason for (_, mode), reason in no_backward.items() if mode is case.training), None)
    reason = known or ill_posed(case, modes_differ)
    if reason is None:
        return case
    if case.wrt and (known is None or any(mode is case.training for _, mode in noise)):
        noise.setdefault(place, replace(case, gradients_are_noise=True))
    no_backward[place] = reason
    return case.without_gradients()


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
