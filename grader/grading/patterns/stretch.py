"""The stretch of elements, in memory order, that holds all wrong ones of a tensor at full size.

A kernel that is right for few rows and wrong for many leaves out the end, because its grid is too small, or starts over
at 2^31 elements, because its index has 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from grader.grading.compare.blocks import index, unravel
from grader.grading.compare.expected import Expected
from grader.grading.compare.wrong_places import WrongPlaces, wrong_places
from grader.grading.patterns.pattern import MAX_ELEMENTS, Pattern


def stretch(actual: torch.Tensor, expected: Expected) -> Pattern | None:
    """The stretch of a tensor, as `stretch_of`."""
    large = actual.numel() > MAX_ELEMENTS
    return stretch_of(wrong_places(actual, expected.reference64), expected.shape) if large else None


def stretch_of(found: WrongPlaces, shape: Sequence[int]) -> Pattern | None:
    """The stretch in which nearly all elements are wrong, if there is one.

    None for a tensor of up to MAX_ELEMENTS, in which other searches find more.
    """
    elements, length = math.prod(shape), found.last - found.first + 1
    if elements <= MAX_ELEMENTS or found.odd or not 7 * length <= 8 * found.wrong or 8 * length > 7 * elements:
        return None
    state = "zero" if found.all_zero else "wrong"
    first, last = (index(unravel(position, shape)) for position in (found.first, found.last))
    if found.last + 1 < elements:
        return Pattern(f"is {state} from {first} to {last}, and right elsewhere", "check what writes those", vague=True)
    text = f"is {state} in the last {length} of {elements} elements, from {first} on, and right before"
    remedy = "start as many blocks as there are elements to write, or loop over what is left"
    if elements > torch.iinfo(torch.int32).max:
        remedy += "; compute indices in 64 bits"
    return Pattern(text, remedy, vague=True)
