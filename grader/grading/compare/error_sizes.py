"""The size of each tensor's error: norm, largest element and its place, and share of elements' bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from grader.grading.compare.blocks import Rows, comparable, rows_each, wide
from grader.grading.compare.together import Pack, chunk


class Compared(NamedTuple):
    """A candidate, its reference, and the bound on the error of each element: floor + slope |g|."""

    candidate: torch.Tensor
    reference64: torch.Tensor
    floor: float
    slope: float


class ErrorSize(NamedTuple):
    """The size of a tensor's error, over the elements that are finite in it and in its reference."""

    l2: float = 0.0
    """Euclidean norm of the errors."""
    reference_l2: float = 0.0
    """Euclidean norm of the reference."""
    worst: float = 0.0
    """The largest absolute error."""
    worst_at: int = 0
    """Row-major position of the largest error."""
    worst_candidate: float = 0.0
    """The candidate's element there; the magnitude of a complex one."""
    worst_reference: float = 0.0
    bound_ratio: float = 0.0
    """The largest error relative to its element's bound; above 1 fails rule 3 (`tolerance.py`). 0 if the smallest bound
    allows the largest error."""
    mixed_relative: float = 0.0
    """The largest error relative to 1 + |g|. 0 if no error exceeds the tightest plain tolerance."""
    same_specials: bool = True
    """Whether NaN and infinities stand in the same places."""

    def within_plain(self, tolerance: float) -> bool:
        """Whether each element passes a plain tolerance, relative and absolute."""
        return self.same_specials and self.mixed_relative <= tolerance


def error_sizes(questions: Sequence[Compared], plain: float) -> list[ErrorSize]:
    """The error size of each; of small tensors in one pass.

    Another pass, over the bounds of elements, is for those whose largest error exceeds the smallest bound, or `plain`,
    the tightest plain tolerance.
    """
    columns = [[question.candidate for question in questions], [question.reference64 for question in questions]]
    found = [
        _merged(rows, chunk(question.candidate.device))
        for question, rows in zip(questions, rows_each(columns, _norms_and_worst), strict=True)
    ]
    doubtful = [
        at
        for at, (one, question) in enumerate(zip(found, questions, strict=True))
        if one.worst > min(question.floor, plain)
    ]
    chosen = [questions[at] for at in doubtful]
    for at, (ratio, mixed) in zip(doubtful, _relative_each(chosen), strict=True):
        found[at] = found[at]._replace(bound_ratio=ratio, mixed_relative=mixed)
    return found


def distances(
    candidates: Sequence[torch.Tensor], references: Sequence[torch.Tensor]
) -> list[tuple[float, float] | None]:
    """Euclidean norms (of candidate - reference, of reference) of each, over the elements finite in both.

    None if NaN and infinities stand in other places. The outputs of timed calls are compared by this function alone.
    """

    def statistics(_: list[int], pack: Pack, exact: Pack, *, finite: bool) -> list[torch.Tensor]:
        error, _c, g, alike = _errors(pack, exact, finite=finite)
        return [alike, pack.norms(error), exact.norms(g)]

    return [
        (math.hypot(*(apart for _, apart, _ in rows)), math.hypot(*(size for *_, size in rows)))
        if all(alike for alike, *_ in rows)
        else None
        for rows in rows_each([candidates, references], statistics)
    ]


def _norms_and_worst(_: list[int], pack: Pack, exact: Pack, *, finite: bool) -> list[torch.Tensor]:
    error, c, g, alike = _errors(pack, exact, finite=finite)
    error = error.abs()
    worst, at = pack.peak(error)
    there = [element.abs() if element.is_complex() else element for element in (pack.at(c, at), pack.at(g, at))]
    return [alike, pack.norms(error), worst, at, *there, exact.norms(g)]


def _errors(pack: Pack, exact: Pack, *, finite: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(errors, candidate, reference, the row of whether specials stand in the same places).

    Errors and reference are 0 where either is not finite, unless all are taken to be.
    """
    alike = pack.row([1.0] * len(pack.counts))
    if finite:
        c, g = comparable(pack.flat, exact.flat)
        return c - g, c, g, alike
    c, g = wide(pack.flat), wide(exact.flat)
    special = ~(torch.isfinite(g) & torch.isfinite(c))
    alike -= pack.largest((special & ~((c == g) | (torch.isnan(c) & torch.isnan(g)))).double())
    return (c - g).masked_fill(special, 0.0), c, g.masked_fill(special, 0.0), alike


def _relative_each(questions: Sequence[Compared]) -> list[tuple[float, float]]:
    """(bound_ratio, mixed_relative) of each."""

    def statistics(positions: list[int], pack: Pack, exact: Pack, *, finite: bool) -> list[torch.Tensor]:
        error, _c, g, _alike = _errors(pack, exact, finite=finite)
        error, size = error.abs(), g.abs()
        bounds = [[getattr(questions[position], name) for position in positions] for name in ("floor", "slope")]
        floor, slope = (pack.spread(pack.row(bound)).to(size.dtype) for bound in bounds)
        ratio = error / (slope * size).add_(floor)
        # 0/0 is NaN and counts as 0: the element is exact and its bound is 0.
        ratio = ratio if finite else ratio.nan_to_num_(0.0, math.inf)
        return [pack.largest(ratio), pack.largest(error.div_(size.add_(1))), exact.norms(g)]

    columns = [[question.candidate for question in questions], [question.reference64 for question in questions]]
    return [
        (max(ratio for ratio, _, _ in rows), max(mixed for _, mixed, _ in rows))
        for rows in rows_each(columns, statistics)
    ]


def _merged(rows: Rows, length: int) -> ErrorSize:
    """The error size of a tensor by the rows of its blocks, each of `length` elements but the last."""
    if not rows:
        return ErrorSize()
    block, (_, _, worst, at, candidate, reference, _) = max(enumerate(rows), key=lambda one: one[1][2])
    return ErrorSize(
        l2=math.hypot(*(row[1] for row in rows)),
        reference_l2=math.hypot(*(row[-1] for row in rows)),
        worst=worst,
        worst_at=int(at) + length * block,
        worst_candidate=candidate,
        worst_reference=reference,
        same_specials=all(row[0] for row in rows),
    )
