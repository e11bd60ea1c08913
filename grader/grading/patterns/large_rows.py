"""Rows where a large gradient is wrong, such as those of tokens that occur more than once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.grading.compare.expected import Expected
from grader.grading.compare.together import chunk
from grader.grading.patterns.pattern import FIT, MAX_ELEMENTS, Known, Pattern
from grader.grading.patterns.regions import named_rows, nearly


def rows_of_large(indices: Sequence[Known], actual: torch.Tensor, expected: Expected) -> Pattern | None:
    """The rows that an integer input names more than once, once or never, if all others are right.

    None for a tensor of up to MAX_ELEMENTS, in which other searches find more.
    """
    if not indices or actual.dim() < 2 or actual.numel() <= MAX_ELEMENTS:
        return None
    device, columns = expected.reference64.device, actual[0].numel()
    of_one_block = max(chunk(device) // columns, 1)
    blocks = zip(*(torch.split(of, of_one_block) for of in (actual, expected.reference64)), strict=True)
    error, size = torch.cat([_norms(ours.to(device), right) for ours, right in blocks], dim=1)
    wrong = (~(error <= FIT * (size + size.square().mean().sqrt()))).cpu()
    count = int(wrong.sum())
    for index in indices:
        for text, inside, remedy, _ in named_rows(index, len(wrong)):
            if count and not bool((wrong & ~inside).any()) and nearly(count, int(inside.sum())):
                return Pattern(f"is wrong {text}, and right elsewhere", remedy)
    return None


def _norms(actual: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The Euclidean norms of each row's error and of each right row, [2, rows]."""
    error = actual.detach().double() - right.double()
    return torch.stack([torch.linalg.vector_norm(of.flatten(1), dim=1) for of in (error, right.double())])
