"""Changes of an input into one unlike the drawn ones, which keep what all draws have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from grader.grading.compare.blocks import kth_smallest
from grader.grading.compare.ties import has_ties
from grader.grading.oracle.code_changes import CODE_CHANGES, UNLIKE_EVERY_DRAW, Change
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.values import as_before, as_real, is_float, is_mask, values_of

SCALED_DOWN = "inputs multiplied by 0.001 or less"
"""Shows an epsilon: a variance of 1 becomes a tenth of the usual 1e-5."""
SCALED_FAR = "inputs multiplied by 1e-6 or less"
"""Shows an epsilon beside differences or norms, such as the 1e-6 that PyTorch adds in a distance."""
SMALLER = "inputs multiplied by 0.3"
"""The control of SCALED_DOWN, which shows no epsilon: what is wrong here too has another cause."""
SCALED_UP = "inputs scaled up to 200"
"""Saturates: an exponential of 200 is infinite, and that of -200 zero."""
SIGNED = "inputs of both signs"
"""Inputs of one sign, as those of torch.rand, with most elements negated: ReLU is no identity there, and the maximum of
a sample is below zero."""
SIGNED_UP = "inputs scaled up to 200, of both signs"
"""Inputs of one sign, of which whole matrices change it: products of two are large and negative there, far below a
maximum that begins at zero."""
SHIFTED = "inputs shifted by ten standard deviations or more"
SHIFTED_FAR = "inputs shifted by a thousand standard deviations"
"""Shows a variance that is the mean of squares less the squared mean, or a distance made of norms and a product. It is
asked only where the reference's outputs stay the same: elsewhere, rounding of the large inputs would decide them."""
OUTLIER = "inputs with 200 at the end of some rows"
"""Far above what came before it: a running maximum has to follow. Few rows have one, so that quantiles stay alike."""
SKEWED = "inputs skewed, so that each row is close to the first one"
EQUAL = "inputs all equal"
"""Takes all variance away, and so shows an epsilon too."""
PAIRED = "inputs whose neighbours are equal"
"""Two and two along each dimension but the first: the maximum of a row or a window is there several times."""
NEAR_RANGE = "inputs scaled up to near the largest number"
"""A mask of -1e9 loses its meaning there."""
ZERO_SAMPLE = "inputs whose first sample is zero"
"""As a padded one: a norm of zero, a product of zeros. Its elements tie with one another."""
SOME_ZEROS = "inputs with zeros among them"
"""Where zero is the end of the range, as of torch.rand, which draws it once in 17 million elements."""
CERTAIN = "probabilities that are all on one class in each row"
"""As the labels of a classification: a term p log(p) is zero there, and not 0 times -infinity."""


def changed(
    change: str, structure: Structure, value: torch.Tensor, *, bounded: bool, scales_whole: bool = False
) -> torch.Tensor:
    """The value after one of CHANGES or CODE_CHANGES, or itself if the change does not apply to it.

    `bounded` keeps the sign of values, and those in [-1, 1] there: an assertion on a device ends the process. With
    `scales_whole`, whole numbers are numbers to the reference and no codes, so that they shrink too.
    """
    if change == UNLIKE_EVERY_DRAW:
        constant = CODE_CHANGES[change](structure, value)
        # Others of positive integers stay in their range; of a mask or of zeros, a reference may assert that.
        stays = value.dtype != torch.bool and constant is not None and bool((value > 0).any())
        return value if constant is None or (bounded and not stays) else constant
    if structure.fixed or value.numel() < 2 or not value.any():
        return value
    if value.is_complex():
        pairs = as_real(value)
        parts = changed(change, Structure([pairs]), pairs, bounded=bounded)
        return value if parts is pairs else as_before(parts, value)
    if change in CODE_CHANGES:
        codes = None if bounded and value.dtype == torch.bool else CODE_CHANGES[change](structure, value)
        return value if codes is None else codes
    if not is_float(value):
        return value
    if is_mask(value):
        return value
    shrinks = change in (SCALED_DOWN, SMALLER)
    if values_of(value).whole and not (scales_whole and shrinks):
        return value
    if structure.sums_alike:
        return PROBABILITY_CHANGES[change](value) if change in PROBABILITY_CHANGES else value
    if change not in CHANGES:
        return value
    new = None if bounded and change in (SIGNED, SIGNED_UP) else CHANGES[change](structure, value)
    if new is None or (bounded and _leaves(structure, new)):
        return value
    return new


def _leaves(structure: Structure, new: torch.Tensor) -> bool:
    """Whether values become negative, or exceed 1, where none is or does."""
    negative = structure.low >= 0 and bool((new < 0).any())
    return negative or (structure.high <= 1 and bool((new.abs() > 1).any()))


def _scaled(structure: Structure, value: torch.Tensor, factor: float) -> torch.Tensor:
    return structure.elementwise(value, lambda part: part * factor)


def unit(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    """Scaled down to a root mean square of 1, if that is larger."""
    rms = float(value.double().square().mean().sqrt())
    return _scaled(structure, value, 1 / max(rms, 1.0))


def _tiny(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    return _scaled(structure, unit(structure, value), 1e-3)


def _farther(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Scaled to 1e-6; None if the square of that is zero in this dtype."""
    return _scaled(structure, unit(structure, value), 1e-6) if torch.finfo(value.dtype).tiny < 1e-30 else None


def _smaller(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    return _scaled(structure, value, 0.3)


def _levelled(value: torch.Tensor) -> torch.Tensor:
    """Rows close to their means, which keep their sums."""
    mean = value.mean(-1, keepdim=True)
    return mean + (value - mean) * 1e-3


def _certain(value: torch.Tensor) -> torch.Tensor:
    """All of each row's sum in its largest element."""
    total = value.sum(-1, keepdim=True)
    return torch.zeros_like(value).scatter(-1, value.argmax(-1, keepdim=True), total)


def _larger(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    """Up to 200, whose exponential is infinite and that of -200 zero, with both signs if there are both.

    Of several samples every other one, beside which the maximum of all is none of the rest.
    """
    several = structure.dense and value.dim() > 1
    part = value[::2] if several else value
    smaller = min(float(part.max()), -float(part.min()))
    reached = smaller if smaller > 0 else float(part.abs().max())
    factor = max(200 / reached, 8.0) if reached else 8.0
    if not several:
        return _scaled(structure, value, factor)
    larger = value.clone(memory_format=torch.contiguous_format)
    larger[::2] *= factor
    return larger


def _largest(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Up to 6e30 in float32: products of two overflow."""
    largest = torch.finfo(value.dtype).max ** 0.8
    return None if math.isfinite(structure.high) else _scaled(structure, value, largest / float(value.abs().max()))


def _shifted(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Shifted by 10 to 40 standard deviations, by 40 if possible, downwards if that keeps the range.

    40 is beyond a mask of -30. After more standard deviations, a variance that is the mean of squares less the squared
    mean has lost its digits.
    """
    spread = float(value.std())
    step = max(10 * spread, min(40 * spread, 40.0))
    if structure.low == -math.inf:
        return structure.elementwise(value, lambda part: part - step)
    return None if math.isfinite(structure.high) else structure.elementwise(value, lambda part: part + step)


def _shifted_far(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Downwards, where no maximum that begins at zero follows; of types that have digits left for what varies."""
    step = 1000 * float(value.std())
    return None if torch.finfo(value.dtype).eps > 1e-6 else structure.elementwise(value, lambda part: part - step)


def _signed(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Where all draws have one sign: the smaller seven eighths of the elements negated, and every other sample whole.

    So many that whole windows of a pool are negative. Equal elements, such as mirror images, keep the same sign. Whole
    samples move away from 0 too, or their maximum would be close to it.
    """
    if structure.low < 0 and structure.high > 0:
        return None
    kept = kth_smallest(value.reshape(-1), max(1, value.numel() * 7 // 8))
    signed = structure.elementwise(value, lambda part: torch.where(part <= kept, -part, part))
    if structure.dense and value.dim() > 1:
        signed[1::2] = -value[1::2] - (value.max() if structure.low >= 0 else value.min())
    return signed


def _signed_larger(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Up to 200, each matrix, or each row of a matrix, with a sign of its own."""
    if (structure.low < 0 and structure.high > 0) or not structure.dense or value.dim() < 2:
        return None
    alone = (*value.shape[:-2], 1, 1) if value.dim() > 2 else (value.shape[0], 1)
    signs = torch.randint(2, alone, device=value.device, dtype=value.dtype) * 2 - 1
    return value * signs * max(200 / float(value.abs().max()), 8.0)


def _outlier(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    if not structure.dense or not value.dim():
        return None
    copy = value.clone(memory_format=torch.contiguous_format)
    copy.view(-1, copy.shape[-1])[::8, -1] = 200
    return copy


def _sorted(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    return value.sort(-1).values if structure.dense and value.dim() else None


def _alike(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Each row close to the first one."""
    if not structure.dense or value.dim() < 2:
        return None
    rows = value.reshape(-1, value.shape[-1])
    return (rows[:1] + (rows - rows[:1]) / 10).view(value.shape)


def _equal(structure: Structure, value: torch.Tensor) -> torch.Tensor:
    """All elements equal to the largest one."""
    largest = value.reshape(-1)[value.abs().argmax()]
    return structure.elementwise(value, lambda part: largest.expand(part.shape))


def _paired(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Not where drawn elements are equal, at which the gradients for the drawn inputs are judged."""
    if not structure.dense or not value.dim() or has_ties(value):
        return None
    for dim in _paired_dims(value):
        value = value.index_select(dim, torch.arange(value.shape[dim], device=value.device) // 2 * 2)
    return value


def over_pairs(gradient: torch.Tensor) -> torch.Tensor:
    """The sums over what PAIRED makes equal, for which it does not matter which of it has the gradient."""
    for dim in _paired_dims(gradient):
        of_pair = torch.arange(gradient.shape[dim], device=gradient.device) // 2
        shape = [(extent + 1) // 2 if at == dim else extent for at, extent in enumerate(gradient.shape)]
        gradient = gradient.new_zeros(shape).index_add_(dim, of_pair, gradient)
    return gradient


def _paired_dims(value: torch.Tensor) -> range:
    return range(1 if value.dim() > 1 else 0, value.dim())


def _comes_near_zero(value: torch.Tensor) -> bool:
    return float(value.abs().min()) < float(value.double().square().mean().sqrt()) / 10


def _first_zero(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Not where zero is the end of the range, as of probabilities, or drawn elements keep away from it."""
    inside = structure.low < 0 < structure.high
    if not _comes_near_zero(value) or not inside or not structure.dense or value.dim() < 2:
        return None
    copy = value.clone(memory_format=torch.contiguous_format)
    copy[0] = 0
    return copy


def _some_zeros(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """One in 64 elements. Not where drawn elements keep away from zero."""
    if structure.low < 0 or not _comes_near_zero(value) or not structure.dense:
        return None
    copy = value.clone(memory_format=torch.contiguous_format)
    copy.view(-1)[::64] = 0
    return copy


CHANGES: Mapping[str, Change] = {
    SCALED_DOWN: _tiny,
    SCALED_FAR: _farther,
    SMALLER: _smaller,
    SCALED_UP: _larger,
    SIGNED: _signed,
    SIGNED_UP: _signed_larger,
    SHIFTED: _shifted,
    SHIFTED_FAR: _shifted_far,
    OUTLIER: _outlier,
    "inputs sorted along the last dimension": _sorted,
    SKEWED: _alike,
    EQUAL: _equal,
    PAIRED: _paired,
    NEAR_RANGE: _largest,
    ZERO_SAMPLE: _first_zero,
    SOME_ZEROS: _some_zeros,
}
"""The changes, by the words that follow "for" in a message."""

PROBABILITY_CHANGES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {SCALED_DOWN: _levelled, CERTAIN: _certain}
"""Changes of inputs whose rows all have the same sum."""

KINDS = tuple(dict.fromkeys((*CHANGES, *PROBABILITY_CHANGES, *CODE_CHANGES)))
"""The names of all changes."""
