"""The reference with a known mistake in it, or another grad_output: a candidate that matches has made that mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from grader.stages import numerics
from grader.stages.cases import Case
from grader.stages.evaluating import GOLDEN, evaluate
from grader.stages.reference import ReferenceDesk


def outputs(
    desk: ReferenceDesk, case: Case, substitute: Literal["gelu_tanh", "gelu_erf"]
) -> dict[str, numerics.Expected]:
    """The float64 outputs with a function replaced by its lookalike; empty where that changes nothing."""
    traits = desk.traits(case)
    if not traits.has_float64:
        return {}
    other = evaluate(
        desk, GOLDEN, traits, case.inputs, case.state, {}, (), case.training, substitute=substitute
    ).outputs
    changed = {name: value for name, value in other.items() if not torch.equal(value, case.outputs[name].golden)}
    return {name: case.outputs[name].around(value) for name, value in changed.items()}


def gradients(
    desk: ReferenceDesk,
    case: Case,
    substitute: Literal["none", "gelu_tanh", "gelu_erf", "no_detach"],
    cotangents: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, numerics.Expected]:
    """The float64 gradients with a function replaced by its lookalike, or for other grad_outputs.

    Operands whose gradient that changes, by name; empty where the reference does not run in float64.
    """
    traits = desk.traits(case)
    if not traits.has_float64 or not case.values_comparable:
        return {}
    given = case.cotangents if cotangents is None else cotangents
    others = evaluate(
        desk, GOLDEN, traits, case.inputs, case.state, given, case.wrt, case.training, substitute=substitute
    ).gradients
    found = {}
    for name, value in others.items():
        expected = case.gradients[name]
        if value is None or (expected is not None and torch.equal(value, expected.golden)):
            continue
        if expected is None:
            label = case.operand_names[name]
            found[name] = numerics.Expected(label, tuple(value.shape), case.operand(name).dtype, value)
        else:
            found[name] = expected.around(value)
    return found
