"""Finds the tensors of a reference that depend on random numbers.

A seed counts if some tensor then differs by more than rounding. A draw that decays, such as the random initial state of
a long recurrence, changes last bits only; a submission's rounding may do the same. Once one tensor differs by more, a
difference in any bit counts in all, because a small random branch may be all that another tensor depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from grader.grading.compare import tolerance
from grader.grading.compare.expected import Expected
from grader.grading.oracle.case import Table
from grader.grading.oracle.evaluation import Evaluation, differing
from grader.grading.oracle.first_look import absent


class Randomness(NamedTuple):
    """Differences between forwards and backwards under other seeds; none, if only by rounding."""

    drawn: frozenset[tuple[Table, str]] = frozenset()
    """The tensors that depend on the seed."""
    optional: frozenset[str] = frozenset()
    """Operands that have a gradient under some seeds only."""

    @property
    def matters(self) -> bool:
        """Whether values cannot be compared between seeds."""
        return bool(self.drawn or self.optional)


def randomness(
    eager: Evaluation,
    others: Iterable[Evaluation],
    wrt: Sequence[str],
    lengths: Mapping[Table, Callable[[torch.Tensor], float]],
) -> Randomness:
    """The randomness that runs under other seeds show, beside the `eager` one.

    `lengths` returns the longest reduction behind a tensor, by table.
    """
    drawn, optional, rounding = set[tuple[Table, str]](), set[str](), True
    for other in others:
        found = differing(eager, other)
        optional |= {name for name in wrt if absent(eager.gradients[name]) != absent(other.gradients[name])}
        rounding = rounding and all(_is_rounding(eager, other, *one, lengths) for one in found - drawn)
        drawn |= found
    return Randomness() if rounding and not optional else Randomness(frozenset(drawn), frozenset(optional))


def _is_rounding(
    eager: Evaluation,
    other: Evaluation,
    table: Table,
    name: str,
    lengths: Mapping[Table, Callable[[torch.Tensor], float]],
) -> bool:
    """Whether two runs of a tensor differ by what is allowed to a submission if the baseline error is 0."""
    one, two = getattr(eager, table)[name], getattr(other, table)[name]
    if one is None or two is None:
        return False
    expected = Expected(
        name=name, shape=tuple(one.shape), dtype=one.dtype, reference64=one, reduction_length=lengths[table](one)
    )
    return tolerance.check(expected, two).status == "passed"
