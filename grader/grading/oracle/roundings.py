"""The reference's float64 results with something in a narrower type: operands or intermediate results.

A candidate whose errors follow those of one of these runs has rounded the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.evaluation import MODEL64, Pass
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import is_float
from grader.protocol.fewer_bits import of_bits


class NarrowFormat(NamedTuple):
    """Significant bits of a narrower type, and how numbers get there."""

    bits: int
    cut: bool = False
    """Whether the other bits are cut off instead of rounded, as tensor cores do."""

    @classmethod
    def of_type(cls, dtype: torch.dtype) -> NarrowFormat:
        """The nearest numbers of a type, however large."""
        return cls(1 - round(math.log2(torch.finfo(dtype).eps)))

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """A floating-point tensor in this format; complex numbers and others as they are."""
        return of_bits(value, self.bits, "cut" if self.cut else "to even") if is_float(value) else value


class Rounded(NamedTuple):
    """A text on what is rounded, and the float64 values of a table then."""

    what: str
    values: Mapping[str, torch.Tensor | None]
    of_an_operator: bool
    """The results of one kind of operator of many."""
    numbers: float = math.inf
    """Different numbers among what was rounded, if that is known."""


def roundings(oracle: Oracle, case: Case, table: Table, to: NarrowFormat) -> Iterator[Rounded]:
    """Yields runs with rounded operands, then with the rounded results of each kind of operator.

    Bits are cut off what products multiply, and nowhere else. As many kinds as fit into the seconds of a stage. Nothing
    without a float64 reference, or for what the reference refuses. Raises ReferenceLost, ReferenceOutOfMemory.
    """
    if not case.values_comparable or not oracle.runs_float64(case):
        return
    plain = Pass.of(case, MODEL64, backward=table == "gradients")
    try:
        for what, operands in _operands(plain, to):
            found = next(oracle.ask(case, [operands]))
            if operands.change is None or found.changed:
                yield Rounded(what, getattr(found, table), False)
        end, steps = oracle.clock() + oracle.budget.stage_seconds, replace(plain, substitute="spelled_out")
        places: tuple[Literal["forward", "backward"], ...] = ("forward", "backward") if plain.wrt else ("forward",)
        for where in () if to.cut else places:
            for turn in itertools.count():
                rounding = p.Rounding(turn=turn, bits=to.bits, cut=to.cut)
                found = next(oracle.ask(case, [replace(steps, change=rounding, change_in=(where,))]))
                if not found.changed or oracle.clock() > end:
                    break
                what = f"the results of `{found.changed}`" + (" in the backward" if where == "backward" else "")
                yield Rounded(what, getattr(found, table), True, found.numbers)
    except ReferenceRefused:  # by operands that it does not take
        return


def _operands(plain: Pass, to: NarrowFormat) -> Iterator[tuple[str, Pass]]:
    """Passes with rounded grad_outputs, with all operands rounded, and with what products multiply rounded."""
    if not to.cut:
        cotangents = {name: to.of(value) for name, value in plain.cotangents.items()}
        if plain.wrt:
            yield "grad_output", replace(plain, cotangents=cotangents)
        inputs = [to.of(value) if isinstance(value, torch.Tensor) else value for value in plain.inputs]
        state = {name: to.of(value) for name, value in plain.state.items()}
        yield "the operands", replace(plain, inputs=inputs, state=state, cotangents=cotangents)
    products = replace(plain, change=p.Rounding(bits=to.bits, cut=to.cut))
    yield "the operands of products", replace(products, change_in=("forward",))
    if plain.wrt:
        yield "the operands of products in the backward", replace(products, change_in=("backward",))
        yield "the operands of products", replace(products, change_in=("forward", "backward"))
