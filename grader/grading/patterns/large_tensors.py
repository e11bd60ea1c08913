"""The places where a large tensor is wrong, found block by block: a stretch of elements, or rows.

A kernel that is right for few rows and wrong for many leaves out the end, because its grid is too small, or starts over
at 2^31 elements, because its index has 32 bits. A copy in float64 may exceed a GPU's memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from grader.grading.compare import blocks
from grader.grading.compare.blocks import unravel
from grader.grading.compare.expected import COARSE_TOLERANCE, Expected
from grader.grading.compare.together import chunk
from grader.grading.patterns.indices import holding, only_there
from grader.grading.patterns.pattern import FIT, MAX_ELEMENTS, Known, Pattern
from grader.grading.patterns.regions import nearly
from grader.grading.patterns.value_regions import named_rows


class WrongPlaces(NamedTuple):
    """Counts of elements, and row-major positions, which mean nothing where the count is 0."""

    wrong: int
    """Finite elements whose error exceeds COARSE_TOLERANCE, relative to the element and the tensor's RMS."""
    first: int
    last: int
    all_zero: bool
    """Each of these is 0."""
    odd: int
    """NaN or infinite elements where the reference is finite."""
    first_odd: int


def wrong_places(actual: torch.Tensor, reference64: torch.Tensor) -> WrongPlaces:
    """Compare two tensors of one shape, of any dtype, on the device of the first. Waits for it twice."""
    rms, size, rows = _rms(reference64), chunk(actual.device), []
    for ours, due in blocks.in_blocks(actual, reference64):
        value = blocks.wide(ours)
        right = blocks.wide(due).to(value)
        odd = ~value.isfinite() & right.isfinite()
        wrong = _is_wrong(value, right, rms)
        nonzero = (wrong & (value != 0)).sum()
        rows.append(torch.stack([wrong.sum(), *_ends(wrong), nonzero, odd.sum(), _ends(odd)[0]]))
    found = torch.stack(rows).tolist() if rows else []
    starts = [at * size for at in range(len(found))]
    hit = [(start, row) for start, row in zip(starts, found, strict=True) if row[0]]
    return WrongPlaces(
        wrong=sum(row[0] for row in found),
        first=next((start + row[1] for start, row in hit), 0),
        last=next((start + row[2] for start, row in reversed(hit)), 0),
        all_zero=not any(row[3] for row in found),
        odd=sum(row[4] for row in found),
        first_odd=next((start + row[5] for start, row in zip(starts, found, strict=True) if row[4]), 0),
    )


def _rms(tensor: torch.Tensor) -> float:
    return blocks.norm(tensor) / math.sqrt(max(tensor.numel(), 1))


def _is_wrong(value: torch.Tensor, right: torch.Tensor, rms: float) -> torch.Tensor:
    return (value - right).abs() > COARSE_TOLERANCE * (right.abs() + rms)


def _ends(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first and the last position of a flat mask."""
    numbers = mask.to(torch.uint8)
    return numbers.argmax(), len(mask) - 1 - numbers.flip(0).argmax()


def place_of_large(actual: torch.Tensor, expected: Expected) -> Pattern | None:
    """The stretch, or else the indices, in which a large tensor is wrong."""
    return stretch(actual, expected) or indices_of_large(actual, expected)


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
    first, last = (str(list(unravel(position, shape))) for position in (found.first, found.last))
    if found.last + 1 < elements:
        return Pattern(f"is {state} from {first} to {last}, and right elsewhere", "check what writes those", vague=True)
    text = f"is {state} in the last {length} of {elements} elements, from {first} on, and right before"
    remedy = "start as many blocks as there are elements to write, or loop over what is left"
    if elements > torch.iinfo(torch.int32).max:
        remedy += "; compute indices in 64 bits"
    return Pattern(text, remedy, vague=True)


def indices_of_large(actual: torch.Tensor, expected: Expected) -> Pattern | None:
    """The indices that hold all wrong elements of a large tensor, though others there are right or zero."""
    if actual.numel() <= MAX_ELEMENTS:
        return None
    rms, masks = _rms(expected.reference64), []
    for ours, due in blocks.in_blocks(actual, expected.reference64):
        value = blocks.wide(ours)
        right = blocks.wide(due).to(value)
        masks.append((_is_wrong(value, right, rms), (value != 0) | (right != 0)))
    wrong, telling = (torch.cat(parts).view(actual.shape) for parts in zip(*masks, strict=True))
    text = only_there(holding(wrong, telling))
    return Pattern(text, "check how those indices are handled", vague=True) if text else None


def rows_of_large(indices: Sequence[Known], actual: torch.Tensor, expected: Expected) -> Pattern | None:
    """The rows that an integer input names more than once, once or never, if all others are right.

    None for a tensor of up to MAX_ELEMENTS, in which other searches find more.
    """
    if not indices or actual.dim() < 2 or actual.numel() <= MAX_ELEMENTS:
        return None
    device, columns = expected.reference64.device, actual[0].numel()
    of_one_block = max(chunk(device) // columns, 1)
    parts = zip(*(torch.split(tensor, of_one_block) for tensor in (actual, expected.reference64)), strict=True)
    error, size = torch.cat([_norms(ours.to(device), right) for ours, right in parts], dim=1)
    wrong = (~(error <= FIT * (size + size.square().mean().sqrt()))).cpu()
    count = int(wrong.sum())
    for named in indices:
        for text, inside, remedy, _ in named_rows(named, len(wrong)):
            if count and not bool((wrong & ~inside).any()) and nearly(count, int(inside.sum())):
                return Pattern(f"is wrong {text}, and right elsewhere", remedy)
    return None


def _norms(actual: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The Euclidean norms of each row's error and of each right row, [2, rows]."""
    error = actual.detach().double() - right.double()
    return torch.stack([torch.linalg.vector_norm(tensor.flatten(1), dim=1) for tensor in (error, right.double())])
