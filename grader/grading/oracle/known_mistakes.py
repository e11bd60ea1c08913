"""The reference's results with a known mistake in them.

A candidate that matches such results, and not the correct ones, has made that mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch

from grader.errors import ReferenceRefused
from grader.grading.compare.blocks import in_blocks
from grader.grading.compare.expected import Expected
from grader.grading.compare.scaling import change
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL64, Evaluation, Pass
from grader.grading.oracle.oracle import Oracle
from grader.protocol import dtype_name
from grader.protocol.changes import Substitute


def outputs(oracle: Oracle, case: Case, substitute: Literal["gelu_tanh", "gelu_erf"]) -> dict[str, Expected]:
    """The float64 outputs that change if GELU is computed in its other form, tanh or erf.

    Empty if the reference does not run in float64.
    """
    other = _with(oracle, replace(case, cotangents={}, gradients={}), substitute).outputs
    changed = {name: value for name, value in other.items() if not torch.equal(value, case.outputs[name].reference64)}
    return {name: case.outputs[name].around(value) for name, value in changed.items()}


def reference_gradients(oracle: Oracle, case: Case) -> Mapping[str, torch.Tensor | None]:
    """The float64 gradients of a changed case by operand; none if the reference refuses it."""
    return _with(oracle, case, "none").gradients


def gradients(
    oracle: Oracle,
    case: Case,
    substitute: Literal["none", "gelu_tanh", "gelu_erf", "no_detach", "no_no_grad"],
    cotangents: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, Expected]:
    """The float64 gradients that change under a substitute for a function, or for other grad_outputs.

    By operand; empty if the reference does not run in float64.
    """
    if not case.values_comparable:
        return {}
    given = case if cotangents is None else replace(case, cotangents=cotangents)
    others = _with(oracle, given, substitute).gradients
    changed = {}
    for name, value in others.items():
        expected = case.gradients[name]
        if value is None or (expected is not None and torch.equal(value, expected.reference64)):
            continue
        if expected is None:
            label = case.operand_names[name]
            changed[name] = Expected(label, tuple(value.shape), case.operand(name).dtype, value)
        else:
            changed[name] = expected.around(value)
    return changed


def _with(oracle: Oracle, case: Case, substitute: Substitute) -> Evaluation:
    """The float64 results under a substitute; none if the reference does not run so.

    For example, no backward can follow a no_grad() that protects the state that a forward changes.
    """
    if not oracle.runs_float64(case):
        return Evaluation({}, {}, {})
    try:
        return next(oracle.ask(case, [replace(Pass.of(case, MODEL64), substitute=substitute)]))
    except ReferenceRefused:
        return Evaluation({}, {}, {})


def rounded_to(value: torch.Tensor, expected: Expected) -> str | None:
    """`bfloat16` or `float16` if float32 elements are exact in it and off by such rounding, else None.

    None for whole numbers, and for values that are off by more: a constant may be exact by chance.
    """
    return _named_if_near(_exact_in(value), value, expected) if value.dtype is torch.float32 else None


def left_unrounded(value: torch.Tensor, expected: Expected) -> str | None:
    """`bfloat16` or `float16` if the reference's values are exact in it, and these off by its rounding.

    None for values that are exact in one too, and for other types than float32.
    """
    if {value.dtype, expected.dtype} != {torch.float32} or _exact_in(value) is not None:
        return None
    return _named_if_near(_exact_in(expected.reference64), value, expected)


def _exact_in(value: torch.Tensor) -> torch.dtype | None:
    """The 16-bit type in which all elements of a wider one are exact; None if they are whole numbers."""
    parts = [part for (part,) in in_blocks(value)]  # a copy at full size may exceed a GPU's memory
    if all(torch.equal(part, part.round()) for part in parts):
        return None
    types = (torch.bfloat16, torch.float16)
    return next((to for to in types if all(torch.equal(part.to(to).to(part.dtype), part) for part in parts)), None)


def _named_if_near(to: torch.dtype | None, value: torch.Tensor, expected: Expected) -> str | None:
    """The name of a 16-bit type, if values are off by no more than rounding to it."""
    near = to is not None and change(expected.reference64, value) <= 4 * torch.finfo(to).eps
    return dtype_name(to) if to is not None and near else None
