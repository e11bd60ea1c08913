"""Changes of masks and of integers into ones unlike the drawn ones.

Rows in which nothing is left, or nothing left out: a mean over no elements, a softmax without scores, no padding. And
other ones where every draw has the same, so that a kernel which never reads them is right for each draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch

from grader.grading import chance
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.values import is_float, is_mask

Change = Callable[[Structure, torch.Tensor], torch.Tensor | None]
"""Makes another value of an input, or returns None if it does not apply."""


def _masks(structure: Structure, value: torch.Tensor) -> bool:
    """Whether these are booleans, or zeros and ones with more ones in some rows than in others, unlike labels."""
    if value.dtype == torch.bool:
        return True
    signless = structure.low == 0
    return signless and value.dim() > 1 and is_mask(value) and bool((value.sum(-1) != value.sum(-1).flatten()[0]).any())


def _one_row(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """All but the first are the last one: of starts, the first row has all elements.

    Of the segments that elements belong to, one has nearly all.
    """
    if not structure.ascends or value.dim() != 1 or value.numel() < 3:
        return None
    copy = value.clone()
    copy[1:] = value[-1]
    return copy


def _first_row(structure: Structure, value: torch.Tensor, element: bool) -> torch.Tensor | None:
    """One value in the first row; not of a square matrix, which may be causal or symmetric."""
    if not _masks(structure, value) or value.dim() < 2 or value.shape[-1] == value.shape[-2]:
        return None
    copy = value.clone(memory_format=torch.contiguous_format)
    copy.view(-1, value.shape[-1])[0] = element
    return copy


def _filled(structure: Structure, value: torch.Tensor, element: bool) -> torch.Tensor | None:
    """One value wherever an element may change."""
    if not _masks(structure, value):
        return None
    return structure.elementwise(value, lambda part: torch.full_like(part, element))


def _padding_mostly(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """Seven in eight are padding, or what a loss ignores."""
    if not structure.repeats:
        return None

    def mostly(part: torch.Tensor) -> torch.Tensor:
        kept = torch.arange(part.numel(), device=part.device).view(part.shape) % 8 == 1
        return torch.where(kept, part, structure.padding)

    return structure.elementwise(value, mostly)


def _padding_only(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """All are what the reference treats apart."""
    if not structure.repeats or not structure.pads:
        return None
    return structure.elementwise(value, lambda part: torch.full_like(part, structure.padding))


def _padding_in_a_row(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """The first row is all padding."""
    if not structure.repeats or not structure.dense or value.dim() < 2:
        return None
    copy = value.clone(memory_format=torch.contiguous_format)
    copy.view(-1, value.shape[-1])[0] = structure.padding
    return copy


def _largest_only(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """All are the largest one of all draws, such as a whole length, or a batch of one class and no padding."""
    if not structure.repeats:
        return None
    return structure.elementwise(value, lambda part: torch.full_like(part, structure.largest))


def _unlike_every_draw(structure: Structure, value: torch.Tensor) -> torch.Tensor | None:
    """About a quarter of the elements of a mask or of integers changed, where all draws are the same.

    The first of each row stays, so that no row of a mask becomes empty. Ascending integers keep their order and both
    ends, as starts of rows do. Other integers become others of their tensor, or equal ones smaller, which is in range
    for an index and for a length.
    """
    if not structure.fixed or structure.sums_alike or not value.numel():
        return None
    mask = value.dtype == torch.bool or (structure.low >= 0 and is_mask(value))
    if not mask and (is_float(value) or value.is_complex()):
        return None
    moved = _quarter(value)
    if structure.ascends:
        moved[..., value.shape[-1] // 2] = True
        moved[..., -1] = False
        other = torch.cat([value[..., :1], value[..., :-1]], -1)
    elif mask:
        other = ~value if value.dtype == torch.bool else 1 - value
    elif bool((value == value.reshape(-1)[0]).all()):
        other = value.div(2, rounding_mode="floor") if value.any() else value + 1
    else:
        other = value.reshape(-1).roll(chance.draw.randrange(1, value.numel())).view(value.shape)
    return torch.where(moved, other, value) if moved.any() else None


def _quarter(value: torch.Tensor) -> torch.Tensor:
    """A mask of about a quarter of the elements, none of them the first of several in a row."""
    moved = torch.rand(value.shape, device=value.device) < 1 / 4
    if value.dim() and value.shape[-1] > 1:
        moved[..., 0] = False
        moved.view(-1)[-1] = True
    return moved if moved.any() else ~moved


UNLIKE_EVERY_DRAW = "a mask or integers other than those that every draw has"
"""The only change of an input that all draws have alike."""
CODE_CHANGES: Mapping[str, Change] = {
    "a mask whose first row is all False": partial(_first_row, element=False),
    "a mask whose first row is all True": partial(_first_row, element=True),
    "a mask that is all False": partial(_filled, element=False),
    "a mask that is all True": partial(_filled, element=True),
    "ascending integers that are all the last one but for the first": _one_row,
    "integers most of which are padding, or the smallest one": _padding_mostly,
    "integers whose first row is all padding, or the smallest one": _padding_in_a_row,
    "integers that are all padding": _padding_only,
    "integers all equal to the largest one": _largest_only,
    UNLIKE_EVERY_DRAW: _unlike_every_draw,
}
"""The changes, by the words that follow "for" in a message."""
