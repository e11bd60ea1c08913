"""Epsilons that a kernel adds where the reference adds none."""

from __future__ import annotations

from functools import partial
from typing import Any

from grader.worker.autograd.one_slip import Slips, with_operand
from grader.worker.autograd.sources import is_float

EPSILONS = (1e-5, 1e-6, 1e-7, 1e-8, 1e-12)
"""What is usually added against a division by zero."""
NEEDS_NONZERO = {**dict.fromkeys(("log", "rsqrt", "sqrt", "reciprocal"), 0), **dict.fromkeys(("div", "truediv"), 1)}
"""The position of the operand that an epsilon is added to, by the name of the operator."""


def epsilons(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slips:
    """An epsilon that the reference does not add."""
    at = NEEDS_NONZERO.get(name)
    if at is not None and at < len(args) and is_float(args[at]):
        for epsilon in EPSILONS:
            what = f"{epsilon:g} added to {'the divisor' if at else 'the argument'} of `{name}`"
            yield what, partial(with_operand, function, args, kwargs, at, args[at] + epsilon)
