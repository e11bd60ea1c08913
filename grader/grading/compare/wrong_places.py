"""Finds where a tensor is wrong, block by block.

A copy of one at full size in float64 may exceed a GPU's memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from grader.grading.compare import blocks
from grader.grading.compare.expected import COARSE_TOLERANCE
from grader.grading.compare.together import chunk


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
    rms = blocks.norm(reference64) / math.sqrt(max(reference64.numel(), 1))
    size, rows = chunk(actual.device), []
    for ours, due in blocks.in_blocks(actual, reference64):
        value = blocks.wide(ours)
        right = blocks.wide(due).to(value)
        odd = ~value.isfinite() & right.isfinite()
        wrong = (value - right).abs() > COARSE_TOLERANCE * (right.abs() + rms)
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


def _ends(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first and the last position of a flat mask."""
    numbers = mask.to(torch.uint8)
    return numbers.argmax(), len(mask) - 1 - numbers.flip(0).argmax()
