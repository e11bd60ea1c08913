"""The reference's float64 gradients with one mistake in them, one mistake after another.

Options of functions at their defaults, then operators of its backward left out or with an operand that is transposed,
flipped or another tensor (`worker/autograd/slips.py`), then a grad_output in another order. A candidate whose gradient
is one of these has made that mistake.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL64, Pass
from grader.grading.oracle.oracle import Oracle

WHERE: Mapping[Literal["forward", "backward"], str] = {
    "forward": "use that option in the backward too",
    "backward": "do that step of the backward as the reference does",
}
"""Where a slip is made, and the remedy."""


class Slipped(NamedTuple):
    """A mistake, and the gradients with it."""

    what: str
    """Follows "gradient of `x` is that"."""
    remedy: str
    gradients: Mapping[str, torch.Tensor | None]


def slips(oracle: Oracle, case: Case) -> Iterator[Slipped]:
    """Yields as many as fit into the seconds of an experiment; none without a float64 reference.

    Raises ReferenceLost, ReferenceOutOfMemory.
    """
    if not case.values_comparable or not oracle.traits(case).has_float64 or oracle.is_slow(case):
        return
    plain = replace(Pass.of(case, MODEL64), substitute="spelled_out", change_in=tuple(WHERE))
    end = oracle.clock() + oracle.budget.experiment
    for within, remedy in WHERE.items():
        first, more = 0, True
        while more and oracle.clock() < end:
            numbers = range(first, first + 16)  # in one job
            passes = [replace(plain, change=p.Slip(within=within, number=number)) for number in numbers]
            try:
                for found in oracle.ask(case, passes):
                    more = more and bool(found.changed)
                    if more:
                        yield Slipped(f"of the reference with {found.changed}", remedy, found.gradients)
            except ReferenceRefused:
                return
            first = numbers.stop
    yield from _reordered(oracle, case, plain)


def _reordered(oracle: Oracle, case: Case, plain: Pass) -> Iterator[Slipped]:
    """Gradients for a grad_output that is flipped, shifted or transposed; also with the gradient moved back.

    The latter is what a scan in the wrong direction computes. Of several outputs only the largest is reordered.
    """
    name, given = max(case.cotangents.items(), key=lambda one: one[1].numel())
    grad = "grad_output" if len(case.cotangents) == 1 else f"the grad_output of {name}"
    moves = list(_moves(given.shape))
    passes = [replace(plain, cotangents={**case.cotangents, name: move.of(given)}) for move in moves]
    for move, found in zip(moves, oracle.ask(case, passes), strict=True):
        remedy = f"read {grad} in its own order"
        yield Slipped(f"for {grad} {move.how}", remedy, found.gradients)
        if move.flips is not None:
            remedy = f"check in which direction the backward goes along dimension {move.flips}"
            last = move.flips - given.dim()
            back = {key: value for key, value in found.gradients.items() if value is not None and value.dim() >= -last}
            back = {key: value.flip(last) for key, value in back.items() if value.shape[last] == given.shape[last]}
            yield Slipped(f"for {grad} {move.how}, and then {move.how} itself", remedy, back)


class _Move(NamedTuple):
    """A reordering of a tensor, and how it is called."""

    how: str
    of: Callable[[torch.Tensor], torch.Tensor]
    flips: int | None = None
    """The dimension along which it flips, if it does."""


def _moves(shape: Sequence[int]) -> Iterator[_Move]:
    for dim in (dim for dim, extent in enumerate(shape) if extent > 1):
        yield _Move(f"flipped along dimension {dim}", partial(torch.flip, dims=(dim,)), flips=dim)
        for by in (1, -1) if shape[dim] > 2 else ():
            yield _Move(f"shifted by {by} along dimension {dim}", partial(torch.roll, shifts=by, dims=dim))
    for one, two in itertools.combinations(range(len(shape)), 2):
        if shape[one] == shape[two] > 1:
            yield _Move(f"transposed in dimensions {one} and {two}", partial(torch.transpose, dim0=one, dim1=two))
