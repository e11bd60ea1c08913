"""Whether a tensor holds the right values in other places: transposed, flipped, shifted or scattered."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from grader.grading.messages import MAX_LISTED
from grader.grading.patterns.pattern import FREE, MAX_ELEMENTS, Pattern, Subject, dimensions, norm


def arrangement(subject: Subject) -> Pattern | None:
    """The right values in another order; of more than five dimensions there are too many."""
    if subject.right.numel() < FREE or len(subject.shape) > 5:
        return None
    for moved, text, remedy in _arrangements(subject.right):
        if subject.explained(subject.actual - moved):
            return Pattern(text, remedy)
    return _shifted(subject) or _reordered_slices(subject) or _scattered(subject)


def _shifted(subject: Subject) -> Pattern | None:
    """The right values one or two indices further along a dimension; others come in at the end."""
    for dim, by in itertools.product(range(len(subject.shape)), (1, -1, 2, -2)):
        kept = subject.shape[dim] - abs(by)
        if kept < FREE:
            continue
        actual, right, error = (
            tensor.narrow(dim, start, kept)
            for tensor, start in (
                (subject.actual, max(by, 0)),
                (subject.right, max(-by, 0)),
                (subject.error, max(by, 0)),
            )
        )
        if subject.explained(actual - right, error) and 2 * norm(error) >= subject.size:
            text = f"is the right one shifted by {by} along dimension {dim}"
            off = "one" if abs(by) == 1 else "two"
            return Pattern(text, f"check the index along dimension {dim}: it is off by {off}")
    return None


def _reordered_slices(subject: Subject) -> Pattern | None:
    """The right rows, channels or heads along one dimension, in another order."""
    for dim, extent in enumerate(subject.shape):
        if extent < 3 or extent**2 > MAX_ELEMENTS or subject.right.numel() < FREE * extent:
            continue
        actual, right = (tensor.movedim(dim, 0).reshape(extent, -1) for tensor in (subject.actual, subject.right))
        order = torch.cdist(actual, right).argmin(1)
        moved = [(index, at) for index, at in enumerate(order.tolist()) if at != index]
        if (
            moved
            and len(set(order.tolist())) == extent
            and subject.explained(subject.actual - subject.right.index_select(dim, order))
        ):
            if (parts := _exchanged(order.tolist())) is not None:
                text = f"has the right values in another order along dimension {dim}: parts {parts} are exchanged"
                return Pattern(text, "check the order in which the parts are put together")
            text = f"has the right values in another order along dimension {dim}: {_runs(moved)}"
            return Pattern(text, f"check how the index along dimension {dim} is made")
    return None


def _scattered(subject: Subject) -> Pattern | None:
    """The right values of each row, window or plane, in other places of it, as by a wrong index of a maximum."""
    count = len(subject.shape)
    for dims in [*((dim,) for dim in range(count)), *([(count - 2, count - 1)] if count > 2 else [])]:
        actual, right = (
            tensor.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims))
            for tensor in (subject.actual, subject.right)
        )
        rest = norm(actual.sort(-1).values - right.sort(-1).values)
        # Unlike other patterns, with no more error than rounding: long rows of two like draws are alike when sorted.
        if right.shape[-1] > 2 and rest <= subject.noise <= 0.1 * subject.size:
            which = dimensions(dims)
            text = f"has the right values at other places along {which}"
            remedy = f"check how the index along {which} is made, and the order of what is exchanged"
            if subject.name in subject.case.operand_names:
                remedy = f"check the index along {which} that the forward saves, and how the backward uses it"
            return Pattern(text, remedy)
    return None


def _exchanged(order: Sequence[int]) -> str | None:
    """`0 and 1 of 3`: equal parts that stand in each other's place; None if it is not that, or single indices."""
    one = next(index for index, at in enumerate(order) if at != index)
    other, moved = order[one], sum(at != index for index, at in enumerate(order))
    size = moved // 2
    aligned = size > 1 and not any(number % size for number in (len(order), one, other))
    if not aligned or list(order) != _swapped(len(order), one, other, size):
        return None
    return f"{one // size} and {other // size} of {len(order) // size}"


def _swapped(length: int, one: int, other: int, size: int) -> list[int]:
    """Indices with so many from `one` on and from `other` on exchanged."""
    order = [*range(length)]
    order[one : one + size], order[other : other + size] = order[other : other + size], order[one : one + size]
    return order


def _runs(moved: Sequence[tuple[int, int]]) -> str:
    """`those of 4 to 7 at 0 to 3, that of 9 at 8`: indices that moved, with their origins."""
    runs: list[list[tuple[int, int]]] = []
    for index, at in moved:
        if runs and (index, at) == (runs[-1][-1][0] + 1, runs[-1][-1][1] + 1):
            runs[-1].append((index, at))
        else:
            runs.append([(index, at)])
    shown = []
    for (first, at), *_, (last, to) in ([*run, run[-1]] for run in runs[:MAX_LISTED]):
        shown.append(f"those of {at} to {to} at {first} to {last}" if last > first else f"that of {at} at {first}")
    more = f" and {len(runs) - MAX_LISTED} more" if len(runs) > MAX_LISTED else ""
    return ", ".join(shown) + more


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
    flat = right.flatten()
    for by in (1, -1):
        if right.dim() > 1:
            yield flat.roll(by).view(shape), f"is the right one shifted by {by} in memory", "check the flat index"
