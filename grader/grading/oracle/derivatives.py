"""Whether gradients are the derivatives of the reference's outputs.

PyTorch's `cosine_similarity` clamps its norms where autograd does not see it: for vectors shorter than epsilon its
gradient is another one. The derivative itself is as right there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from grader.errors import ReferenceRefused
from grader.grading.compare.expected import EPSILON
from grader.grading.oracle.case import Case, input_index, is_input
from grader.grading.oracle.evaluation import MODEL64, Pass
from grader.grading.oracle.oracle import Oracle


def are_derivatives(oracle: Oracle, case: Case, gradients: Mapping[str, torch.Tensor]) -> bool:
    """Whether the gradients of inputs predict how float64 outputs change, along six random directions.

    `gradients` is by operand; those of parameters are not looked at. False where the reference does not take inputs a
    little beside the case's, or might not survive them.
    """
    given = {name: gradient for name, gradient in gradients.items() if is_input(name)}
    if not oracle.runs_float64(case) or oracle.traits(case).asserts:
        return False
    try:
        return all(_predict(oracle, case, given) for _ in range(6))
    except ReferenceRefused:
        return False


def _predict(oracle: Oracle, case: Case, gradients: Mapping[str, torch.Tensor]) -> bool:
    """The same along one direction, by a central difference.

    The relative step is the cube root of float32's epsilon (Press et al., Numerical Recipes, section 5.7). The error of
    the difference is of the order of the step's square, so a deviation of a step tells.
    """
    step = EPSILON ** (1 / 3)
    up, down = list(case.inputs), list(case.inputs)
    predicted = usual = 0.0
    for name, gradient in gradients.items():
        index = input_index(name)
        value = case.inputs[index]
        assert isinstance(value, torch.Tensor)
        away = step * float(value.double().square().mean().sqrt()) * torch.randn_like(value)
        above, below = value + away, value - away
        up[index], down[index] = above, below
        part = gradient.to(value.device).double() * ((above.double() - below.double()) / 2)  # as they were rounded
        predicted += float(part.sum())
        usual += float(part.square().sum())
    forwards = [Pass(MODEL64, tuple(inputs), case.state, training=case.training) for inputs in (up, down)]
    after, before = (one.outputs for one in oracle.ask(case, forwards))
    seen = sum(
        float((g.double() * (after[name].double() - before[name].double())).sum()) / 2
        for name, g in case.cotangents.items()
    )
    return bool(abs(seen - predicted) <= step * math.sqrt(usual))
