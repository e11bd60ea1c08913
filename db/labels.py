"""Which submissions a board takes, by their labels and their precision."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Self

from grader.verdict.precision import Precision
from grader.verdict.value import Value

NOT_SOLUTIONS = ("wraps_reference",)
"""Labels that a board leaves out unless asked for: a copy of the reference is not a solution."""


class LabelChoice(Value):
    """The labels that a submission must have and must not have, and its precision, to be on a board."""

    having: tuple[str, ...] = ()
    without: tuple[str, ...] = NOT_SOLUTIONS
    precision: Precision = Precision.FP32

    @classmethod
    def of(
        cls,
        having: Sequence[str] = (),
        without: Sequence[str] = (),
        *,
        everything: bool = False,
        precision: Precision = Precision.FP32,
    ) -> Self:
        """The choice with `NOT_SOLUTIONS` left out too, unless `everything` or `having` asks for them."""
        default = () if everything else tuple(label for label in NOT_SOLUTIONS if label not in having)
        found = tuple(dict.fromkeys((*default, *without)))
        return cls(having=tuple(having), without=found, precision=precision)

    def takes(self, labels: Collection[str]) -> bool:
        """Whether a submission with these labels is on the board."""
        return set(self.having) <= set(labels) and set(self.without).isdisjoint(labels)


SOLUTIONS = LabelChoice()
"""Every submission but copies of the reference."""
EVERYTHING = LabelChoice(without=())
"""Every submission."""
