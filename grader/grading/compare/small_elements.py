"""Judges elements far below the size of their tensor.

A running product, a decay or a sharp softmax leaves most elements below the rounding of the largest ones, and a mask of
-1e9 all that it does not hide, so that a tolerance relative to the whole tensor says nothing about them. They are
judged beside elements of their own size.
"""

from __future__ import annotations

import torch

from grader.grading.compare import narrow_types, nonsmooth
from grader.grading.compare.blocks import norm, number, relative

LEAST = torch.finfo(torch.float32).tiny / torch.finfo(torch.float32).eps
"""About 1e-31: below it, products on the way may underflow."""


def least_of(dtype: torch.dtype) -> float:
    """LEAST, or the size from which on products in 16 bits do not underflow."""
    return max(LEAST, torch.finfo(dtype).tiny / torch.finfo(dtype).eps) if narrow_types.is_narrow(dtype) else LEAST


def tolerated(reference64: torch.Tensor, small: float, share: float, *, least: float = LEAST) -> float | None:
    """The relative error of elements of one size that counts, if they are of at most the size `small`.

    It is `share` where most elements are that small, and a half where a thousandth of them is: of few, a right kernel
    may lose digits to the larger ones, but not all. None for fewer, or without enough of them above `least`.
    """
    size = reference64.abs()
    counts = [(size <= small) & (size > least), size > small, size > 0]
    judged, larger, nonzero = torch.stack([mask.sum() for mask in counts]).tolist()
    if judged < max(nonsmooth.MIN_ELEMENTS, nonzero / 1000):
        return None
    return share if larger <= nonzero / 2 else 0.5


def wrong(
    candidate: torch.Tensor,
    reference64: torch.Tensor,
    spread: nonsmooth.Spread,
    *,
    small: float,
    share: float,
    least: float = LEAST,
) -> str | None:
    """A text on wrong elements of at most the size `small`; follows the tensor's name.

    Those below `least` are not judged. In each decade, the norm of the error may be `share` of the norm of the
    elements, and nonsmooth.FACTOR times that of the spread, which is asked for only if the former does not suffice; in
    16 bits once that, which many roundings are behind. Nothing is said where that is as much as the elements: they are
    noise in float32, as a gradient that is 0 but for rounding.
    """
    size, factor = reference64.abs(), 1.0 if narrow_types.is_narrow(candidate.dtype) else nonsmooth.FACTOR
    chosen = (size <= small) & (size > least)
    errors = nonsmooth.absolute_error(candidate, reference64.to(candidate.device))[chosen.to(candidate.device)]
    size, decades = size[chosen].to(errors.device), size[chosen].log10().floor().to(errors.device)
    for decade in sorted(set(decades.tolist()), reverse=True):
        within = decades == decade
        off, whole = norm(errors[within]), norm(size[within])
        if off > share * whole:
            allowed = factor * norm(spread().to(errors.device)[chosen.to(errors.device)][within])
            if allowed < whole and off > share * whole + allowed:
                low, high = number(10**decade), number(10 ** (decade + 1))
                error = f"relative error of {relative(off, whole):.2g}"
                return f"has a {error} in its elements from {low} to {high}, far below its largest ones"
    return None


def least_judged(
    reference64: torch.Tensor, spread: nonsmooth.Spread, *, small: float, above: float = LEAST
) -> float | None:
    """The size from which on elements of at most `small` are no noise; None if all are.

    In each decade above it, the spread leaves half of the norm. None of `above` or less is looked at.
    """
    size, least = reference64.abs(), None
    chosen = (size <= small) & (size > above)
    noise, size = spread().to(size.device)[chosen], size[chosen]
    decades = size.log10().floor()
    for decade in sorted(set(decades.tolist()), reverse=True):
        within = decades == decade
        if nonsmooth.FACTOR * norm(noise[within]) > norm(size[within]) / 2:
            break
        least = 10**decade
    return least
