"""Finds references whose values decide nothing: random ones, and those that rounding decides.

A seed counts if some tensor then differs by more than rounding. A draw that decays, such as the random initial state of
a long recurrence, changes last bits only; a submission's rounding may do the same. Once one tensor differs by more, a
difference in any bit counts in all, because a small random branch may be all that another tensor depends on.

Float32 gradients may be rounding noise. For example, a norm over two values gives 1 and -1 whatever they are, and its
derivative depends on their last digits. Behind several of those, gradients are off by their own size, from one order of
sums to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

import torch

from grader.grading.compare import tolerance
from grader.grading.compare.blocks import same_bits
from grader.grading.compare.expected import EPSILON, Expected, know_norms
from grader.grading.compare.tolerance import BASELINE_FACTOR_L2
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.evaluation import Evaluation
from grader.grading.oracle.first_look import absent

VariantMode = tuple[str, bool]
"""Variant, and whether it is in train()."""


class NoBackward(NamedTuple):
    """The reason why values of gradients are not compared."""

    reason: str
    is_noise: bool
    """Whether rounding decides the gradients; else there are none."""


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
    return tolerance.passes(expected, two)


class NotCompared:
    """The variants and modes of one reference whose gradients are not compared."""

    def __init__(self) -> None:
        self.why: dict[VariantMode, NoBackward] = {}
        """The reasons. Kept when cases go: one size tells it for others."""
        self.noise: dict[VariantMode, Case] = {}
        """Cases whose gradients rounding decides, with these gradients."""

    def set_apart(self, case: Case, modes_differ: Callable[[str], bool]) -> Case:
        """The case without gradients that rounding decides.

        If rounding decides the gradients of another size in its mode, so it does for this one.
        """
        place = case.variant, case.training
        known = (found for (_, mode), found in self.why.items() if mode is case.training and found.is_noise)
        found = self.why.get(place) or next(known, None) or ill_posed(case, modes_differ)
        if found is None:
            return case
        if case.wrt and found.is_noise:
            self.noise.setdefault(place, case.alike(gradients_are_noise=True))
        self.why[place] = found
        return case.without_gradients()

    def clear(self) -> None:
        """Forget all reasons and cases."""
        self.why.clear()
        self.noise.clear()


def ill_posed(case: Case, modes_differ: Callable[[str], bool]) -> NoBackward | None:
    """The share of the gradients that rounding decides, if it decides most of them; None if it does not.

    None too if train() and eval() do not differ for the variant: a missing backward would show in neither. Random
    numbers and ties, which decide as much, have rules of their own.
    """
    if not case.values_comparable:
        return None
    gradients = [expected for expected in case.gradients.values() if expected is not None and expected.has_float64]
    know_norms(gradients)
    noise = sum(map(is_noise, gradients))
    if 2 * noise <= len(gradients) or not modes_differ(case.variant):
        return None
    share = f"{noise} of its {len(gradients)} gradients"
    return NoBackward(f"in float32, {share} are off by about their own size, by rounding alone", is_noise=True)


def is_noise(expected: Expected) -> bool:
    """Whether zeros would pass, though float64 has other values.

    Values far below float32's errors are zeros, and another gradient is wrong there.
    """
    error, size = expected.error_l2, expected.norm
    return expected.ties is None and BASELINE_FACTOR_L2 * error >= size >= math.sqrt(EPSILON) * error > 0


def differing(one: Evaluation, other: Evaluation) -> set[tuple[Table, str]]:
    """The tensors that differ in any bit."""
    found = set[tuple[Table, str]]()
    for table in get_args(Table):
        others = getattr(other, table)
        for name, value in getattr(one, table).items():
            if (value is None) != (others[name] is None) or (value is not None and not same_bits(value, others[name])):
                found.add((table, name))
    return found
