"""Regions by the values of a known tensor: below or above a limit, or named by integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch

from grader.grading.messages import MAX_LISTED
from grader.grading.patterns.pattern import FREE, Known, Region, Subject


def by_value(subject: Subject) -> Iterator[Region]:
    """The region where a known tensor of this shape is below or above a limit, in value or in size."""
    gradients = max(len(subject.case.gradients), 1)
    for tried, known in enumerate(_with_differences(list(subject.like())), 1):
        for name, value in ((known.name, known.value), (f"|{known.name}|", known.value.abs())):
            for at, inside in _limits(name, value, subject.wrong, subject.telling, tried * gradients):
                yield Region(f"where {at}", inside, f"check the branch for {at}", by_index=False)


def by_row_value(subject: Subject) -> Iterator[Region]:
    """The rows where a known tensor with one number for each of them is below or above a limit."""
    gradients = max(len(subject.case.gradients), 1)
    for tried, known in enumerate((*subject.tensors, *subject.indices), 1):
        dims, value = known.value.dim(), known.value.double()
        if not 0 < dims < len(subject.shape) or tuple(value.shape) != subject.shape[:dims]:
            continue
        wrong, telling = (mask.flatten(dims).any(-1) for mask in (subject.wrong, subject.telling))
        for at, rows in _limits(known.name, value, wrong, telling, tried * gradients):
            inside = rows.view(*rows.shape, *[1] * (len(subject.shape) - dims)).expand(subject.shape)
            yield Region(f"in the rows where {at}", inside, f"check the branch for {at}", by_index=False)


def _limits(
    name: str, value: torch.Tensor, wrong: torch.Tensor, telling: torch.Tensor, tries: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """The limits that part all wrong elements from right ones: in words, and the side of the wrong ones.

    `tries` is the number of gradients and tensors to find one for; a deep network has a hundred of either.
    """
    # By chance, any of so many tries parts the elements in about one of e^FREE = 55 networks.
    if _log_ways(int(telling.sum()), int(wrong.sum())) < FREE + math.log(tries):
        return
    for sign, relation in ((1.0, ">"), (-1.0, "<")):
        edge = float((sign * value)[wrong].min())
        inside = sign * value >= edge
        outside = telling & ~inside
        if min(int(wrong.sum()), int(outside.sum())) >= FREE:
            limit = sign * _between(float((sign * value)[outside].max()), edge) or 0.0
            yield f"{name} {relation}{'=' * (sign * limit == edge)} {limit:.4g}", inside


def _log_ways(elements: int, chosen: int) -> float:
    """The logarithm of the number of ways to choose so many elements."""
    return math.lgamma(elements + 1) - math.lgamma(chosen + 1) - math.lgamma(elements - chosen + 1)


def _with_differences(like: Sequence[Known]) -> Iterator[Known]:
    """Known tensors, then the differences of two, on which a loss depends."""
    yield from like
    for one, other in itertools.islice(itertools.combinations(like, 2), MAX_LISTED):
        yield Known(f"{one.name} - {other.name}", one.value - other.value)


def _between(below: float, above: float) -> float:
    """The number with the fewest digits in (below, above]."""
    if below <= 0 <= above:
        return 0.0
    for digits in range(-6, 12):
        step = 10.0**-digits
        found = math.ceil(below / step + 1e-9) * step
        if below < found <= above:
            return found
    return above


def named_by_index(subject: Subject) -> Iterator[Region]:
    """The positions that an integer input names: classes, or rows of a table."""
    for index in subject.indices:
        yield from _classes(subject, index)
        yield from _rows(subject, index)


def _classes(subject: Subject, index: Known) -> Iterator[Region]:
    for dim in range(len(subject.shape)):
        rest = subject.shape[:dim] + subject.shape[dim + 1 :]
        inside_range = bool(((index.value >= 0) & (index.value < subject.shape[dim])).all())
        if tuple(index.value.shape) == rest and inside_range:
            inside = torch.zeros_like(subject.wrong)
            inside.scatter_(dim, index.value.long().unsqueeze(dim), True)
            where = f"at the positions along dimension {dim} that {index.name} names"
            yield Region(where, inside, f"check the term of the element that {index.name} names")
            most = subject.wrong.sum(dim).flatten()
            if bool((most == most[0]).all()) and int(most[0]) > 1 and bool((subject.wrong | ~inside).all()):
                text = f"in {int(most[0])} elements along dimension {dim}, one of which {index.name} names"
                yield Region(text, subject.wrong, f"read {index.name} at the same position as the reference does")


def _rows(subject: Subject, index: Known) -> Iterator[Region]:
    if index.value.dim() > 1 and index.value.shape[0] == subject.shape[0]:
        return  # a batch of indices, and a tensor of as many samples
    for region in named_rows(index, subject.shape[0]):
        yield region._replace(inside=region.inside.view(-1, *[1] * (len(subject.shape) - 1)).expand(subject.shape))


def named_rows(index: Known, rows: int) -> Iterator[Region]:
    """The rows that an integer input names more than once, once or never; none if some are beyond `rows`."""
    if not index.value.numel() or int(index.value.min()) < 0 or int(index.value.max()) >= rows:
        return
    times = torch.bincount(index.value.long().flatten(), minlength=rows)
    add_up = "add up the contributions of equal indices, atomically"
    for chosen, text, remedy in (
        (times > 1, f"in the rows that {index.name} names more than once", add_up),
        (times == 1, f"in the rows that {index.name} names once", "check rows with a single contribution"),
        (times == 0, f"in the rows that {index.name} does not name", "initialise the gradient buffer with zeros"),
    ):
        if bool(chosen.any()):
            yield Region(text, chosen, remedy)
