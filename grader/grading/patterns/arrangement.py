"""Whether a tensor holds the right values in other places: transposed, flipped or shifted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from grader.grading.patterns.pattern import FREE, Pattern, Subject


def arrangement(subject: Subject) -> Pattern | None:
    """The right values in another order; of more than five dimensions there are too many."""
    if subject.right.numel() < FREE or len(subject.shape) > 5:
        return None
    for moved, text, remedy in _arrangements(subject.right):
        if subject.explained(subject.actual - moved):
            return Pattern(text, remedy)
    return None


def _arrangements(right: torch.Tensor) -> Iterator[tuple[torch.Tensor, str, str]]:
    shape, dims = right.shape, range(right.dim())
    for order in itertools.permutations(dims):
        swapped = [dim for dim in dims if order[dim] != dim and shape[dim] > 1]
        if len(swapped) < 2:
            continue
        moved, which = right.permute(order), f"dimensions {', '.join(map(str, swapped))}" if right.dim() > 2 else ""
        remedy = f"swap {which} back" if which else "transpose it: it is the transpose of the right one"
        text = f"is the right one transposed{f' in {which}' if which else ''}"
        if moved.shape == shape:
            yield moved, text, remedy
        else:
            yield moved.reshape(shape), f"{text}, in memory order", "write it in the operand's memory order"
    for count in range(1, right.dim() + 1):
        for chosen in itertools.combinations([dim for dim in dims if shape[dim] > 1], count):
            which = f"dimension{'s' * (count > 1)} {' and '.join(map(str, chosen))}"
            yield right.flip(chosen), f"is the right one flipped along {which}", f"reverse the order along {which}"
    for dim, by in itertools.product(dims, (1, -1)):
        if shape[dim] > 2:
            text = f"is the right one shifted by {by} along dimension {dim}"
            yield right.roll(by, dim), text, f"check the index along dimension {dim}: it is off by one"
    flat = right.flatten()
    for by in (1, -1):
        if right.dim() > 1:
            yield flat.roll(by).view(shape), f"is the right one shifted by {by} in memory", "check the flat index"
