"""Whether an error is that of another precision: TensorFloat-32 operands, or sums kept in 16 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from grader.grading.compare.narrow_types import is_narrow, spacing
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import cut, rounded
from grader.grading.oracle.evaluation import MODEL64, evaluate
from grader.grading.oracle.oracle import Oracle
from grader.grading.patterns.pattern import FREE, Pattern, Subject, norm, number
from grader.verdict.precision import TF32_BITS, Precision


def tensor_float_accuracy(oracle: Oracle, case: Case, name: str, sealed: torch.Tensor) -> bool:
    """Whether an output's error follows that of float32 operands with ten bits of mantissa.

    They are rounded or cut off. Asked in fp32 only, where TensorFloat-32 is off. The correlation need not be high: in a
    chain of products, the operands of all but the first are results, whose rounding is unknown.
    """
    traits, expected = oracle.traits(case), case.outputs[name]
    if oracle.precision is not Precision.FP32 or expected.dtype is not torch.float32 or not traits.flops:
        return False
    if not traits.has_float64 or not case.comparable("outputs", name) or sealed.numel() < FREE:
        return False
    exact = expected.reference64.to(sealed.device).double()
    error = sealed.double() - exact
    for inputs, state in _shortened(case):
        oracle.ready(case, MODEL64)
        run = evaluate(oracle, MODEL64, traits, inputs, state, {}, (), case.training)
        due = run.outputs[name].to(sealed.device).double() - exact
        sizes = norm(error), norm(due)
        alike = float((error * due).sum()) / max(sizes[0] * sizes[1], 1e-300)
        if alike > max(0.3, 3 / math.sqrt(error.numel())) and sizes[0] < 4 * sizes[1]:
            return True
    return False


def _shortened(case: Case) -> Iterator[tuple[list[object], dict[str, torch.Tensor]]]:
    """Inputs and state with ten bits of mantissa."""
    ways: tuple[Callable[[Any], Any], ...] = (rounded, partial(cut, bits=TF32_BITS))
    for way in ways:
        yield [way(value) for value in case.inputs], {key: way(value) for key, value in case.state.items()}


def accumulated(subject: Subject) -> Pattern | None:
    """The error of a long sum that was kept in the 16-bit type of its result.

    It is in more than a quarter of the elements: where an activation ends in zeros, half of them have none.
    """
    dtype, length = subject.expected.dtype, subject.expected.reduction_length
    size, count = norm(subject.right), subject.right.numel()
    if not is_narrow(dtype) or length < FREE * FREE or count < FREE * FREE or not size:
        return None
    relative, unit = subject.size / size, spacing(dtype) / 2
    upper_quartile = float(subject.error.abs().flatten().kthvalue(count - count // 4).values)
    spread_out = upper_quartile > 0.2 * subject.size / math.sqrt(count)
    if not spread_out or not unit / 4 < relative < unit * math.sqrt(length) or not _patternless(subject.error):
        return None
    name = str(dtype).removeprefix("torch.")
    text = f"has the error of sums that are kept in {name} (relative {number(relative)}), without a pattern"
    return Pattern(text, "accumulate in float32, and round once at the end", "low_precision")


def _patternless(error: torch.Tensor) -> bool:
    """Whether the error averages out along each dimension, as rounding does."""
    whole = norm(error)
    for dim, extent in enumerate(error.shape):
        if extent >= FREE and math.sqrt(extent) * norm(error.mean(dim)) > 0.7 * whole:
            return False
    return True
