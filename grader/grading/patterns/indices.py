"""Indices of each dimension that hold the wrong elements of a tensor, and what messages call them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch

from grader.grading.messages import MAX_LISTED
from grader.grading.patterns.pattern import FREE


def holding(wrong: torch.Tensor, telling: torch.Tensor) -> list[torch.Tensor]:
    """A mask of the indices of each dimension that hold all wrong elements; all True if that says nothing.

    `wrong` and `telling` are masks of one shape: elements that are wrong, and those that could be seen to be.
    """
    hit, count, elements = hit_indices(wrong), int(wrong.sum()), int(telling.sum())
    if not 0 < count < elements:
        return [torch.ones_like(mask) for mask in hit]
    share = -math.log1p(-count / elements)
    for dim, mask in enumerate(hit):
        right = int(telling.movedim(dim, 0)[~mask.to(wrong.device)].sum())
        # Elsewhere, all would be right by chance with the probability e^(-share * right).
        if share * right < 2 * FREE or not are_regular(mask, int(mask.sum()) * FREE <= count):
            hit[dim] = torch.ones_like(mask)
    return hit


def only_there(hit: Sequence[torch.Tensor]) -> str | None:
    """Words for an error in some elements at these indices, after a tensor's name; None if they are all."""
    shape = [len(mask) for mask in hit]
    places = [named_indices(dim, mask, shape) for dim, mask in enumerate(hit) if not bool(mask.all())]
    return f"is wrong at {' and '.join(places)} only, in some of the elements there" if places else None


def hit_indices(mask: torch.Tensor) -> list[torch.Tensor]:
    """The indices of each dimension at which the mask is true anywhere, on the CPU."""
    return [mask.movedim(dim, 0).reshape(extent, -1).any(1).cpu() for dim, extent in enumerate(mask.shape)]


def are_regular(chosen: torch.Tensor, whole: bool) -> bool:
    """Whether indices say something: an end, equal distances, or a few with `whole` slices of elements."""
    found, last = chosen.nonzero().flatten(), len(chosen) - 1
    gaps = found.diff()
    of_an_end = int(found[0]) == 0 or int(found[-1]) == last
    if (len(found) > 2 or of_an_end) and bool((gaps == gaps[:1]).all()):
        return True
    return whole and 2 * len(found) <= len(chosen)


def named_indices(dim: int, chosen: torch.Tensor, shape: Sequence[int]) -> str:
    """Indices in words: `the last 4 of 12 rows`, `index 2 of dimension 1`, `every second of the columns`."""
    found = [int(i) for i in chosen.nonzero()]
    count, extent = len(found), len(chosen)
    unit = {0: "row", 1: "column"}.get(dim) if len(shape) == 2 else None
    steps = {after - before for before, after in itertools.pairwise(found)}
    units = f"{unit}s" if unit else f"indices of dimension {dim}"
    if count == 1:
        which = "the last" if found[0] == extent - 1 else "the first" if found[0] == 0 else ""
        named = f"{unit} {found[0]}" if unit else f"index {found[0]} of dimension {dim}"
        return f"{named} ({which} of {extent})" if which else named
    if steps == {1}:
        if found[0] == 0:
            return f"the first {count} of {extent} {units}"
        if found[-1] == extent - 1:
            return f"the last {count} of {extent} {units} ({found[0]} and up)"
        return (
            f"{units} {found[0]} to {found[-1]}"
            if unit
            else f"the indices {found[0]} to {found[-1]} of dimension {dim}"
        )
    if len(steps) == 1 and count > 2:
        step = next(iter(steps))
        return f"every {'second' if step == 2 else f'{step}th'} of the {units}, from {found[0]}"
    shown = ", ".join(map(str, found[:MAX_LISTED]))
    more = f" and {count - MAX_LISTED} more" if count > MAX_LISTED else ""
    return f"{count} of {extent} {units} ({shown}{more})"
