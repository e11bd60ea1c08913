"""Regions that an integer input names: classes, or rows of a table."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from grader.grading.patterns.pattern import Known, Region, Subject


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
