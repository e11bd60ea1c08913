"""The stretch of elements, in memory order, that holds all wrong ones of a tensor at full size.

A kernel that is right for few rows and wrong for many leaves out the end, because its grid is too small, or starts over
at 2^31 elements, because its index has 32 bits.
"""

from __future__ import annotations

import torch

from grader.grading.compare.blocks import index, unravel
from grader.grading.compare.expected import Expected
from grader.grading.compare.wrong_places import wrong_places
from grader.grading.patterns.pattern import MAX_ELEMENTS, Pattern


def stretch(actual: torch.Tensor, expected: Expected) -> Pattern | None:
    """The stretch in which nearly all elements are wrong, if there is one.

    Other searches take tensors of up to MAX_ELEMENTS.
    """
    elements = actual.numel()
    if elements <= MAX_ELEMENTS:
        return None
    found = wrong_places(actual, expected.reference64)
    length = found.last - found.first + 1
    if found.odd or not found.wrong or 8 * found.wrong < 7 * length or 8 * length > 7 * elements:
        return None
    state = "zero" if found.all_zero else "wrong"
    first, last = (index(unravel(position, expected.shape)) for position in (found.first, found.last))
    if found.last + 1 < elements:
        return Pattern(f"is {state} from {first} to {last}, and right elsewhere", "check what writes those", vague=True)
    text = f"is {state} in the last {length} of {elements} elements, from {first} on, and right before"
    remedy = "start as many blocks as there are elements to write, or loop over what is left"
    if elements > torch.iinfo(torch.int32).max:
        remedy += "; compute indices in 64 bits"
    return Pattern(text, remedy)
