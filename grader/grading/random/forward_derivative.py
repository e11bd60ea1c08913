"""A submission's own forward, differentiated: central differences under one seed, where it draws the same numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch

from grader.grading.backward.vjp import add_forward, ask, export_outputs, product
from grader.grading.candidate import Candidate
from grader.grading.compare.blocks import reals
from grader.grading.oracle.case import Case

STEPS = (2e-3, 1e-3)
"""Relative to the operands. An output counts where both tell the same derivative: no kink lies between."""
AGREEMENT = 5e-3
ROUNDING = 1e-5
"""Relative to the outputs' RMS: an output that moves by less tells nothing."""
NOISE = 2e-6
"""Likewise: by so much it may move by rounding alone."""


class Derivative(NamedTuple):
    """Of one output along a direction, in float64, a complex number as two."""

    value: torch.Tensor
    moves: torch.Tensor
    """Where it is more than rounding, and no kink lies between."""
    steady: torch.Tensor
    """Where no kink lies between, be it that nothing moves."""
    norm: float
    """Of the output itself; more where it is rounded more than float32."""


def along(
    candidate: Candidate, case: Case, directions: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, Derivative]] | None:
    """The move by operand, scaled to the operands' size, and each output's derivative along it.

    None where a forward raises or returns other tensors. Raises Stopped.
    """
    move = {name: _scaled(case.operand(name), direction) for name, direction in directions.items()}
    signed = {f"{step} {sign}": sign * step for step in STEPS for sign in (1, -1)}
    script = candidate.script(case)
    for key, by in signed.items():
        moved = _moved(case, {name: by * value for name, value in move.items()})
        candidate.reset(script, moved)
        script.put_inputs("a", moved.inputs, requires_grad=True)
        add_forward(script, case, "a", tape=key)
        export_outputs(script, case, key)
    sealed = candidate.attempt(script, "backward", "forwards under one seed").sealed
    if not all(f"output:{key}:{output}" in sealed for key in signed for output in case.cotangents):
        return None

    def difference(step: float, output: str) -> torch.Tensor:
        up, down = (sealed[f"output:{step} {sign}:{output}"] for sign in (1, -1))
        return (reals(up) - reals(down)) / (2 * step)

    found = {}
    for output in case.cotangents:
        coarse, fine = (difference(step, output) for step in STEPS)
        value = sealed[f"output:{STEPS[-1]} 1:{output}"]
        norm = float(reals(value).nan_to_num(0.0, 0.0, 0.0).norm()) * _coarseness(value.dtype)
        size = norm / math.sqrt(max(fine.numel(), 1))
        agreed = (coarse - fine).abs() <= AGREEMENT * fine.abs()
        still = (coarse - fine).abs() <= AGREEMENT * fine.abs() + NOISE / STEPS[-1] * size
        moves = agreed & (fine.abs() * STEPS[-1] >= ROUNDING * size)
        slope = (fine + (fine - coarse) / 3).nan_to_num(0.0, 0.0, 0.0)  # of infinity less infinity
        found[output] = Derivative(slope, moves, still, norm)
    return move, found


def gradients_for(
    candidate: Candidate, case: Case, cotangents: Mapping[str, torch.Tensor]
) -> Mapping[str, torch.Tensor | None] | None:
    """None where the backward raises. Raises Stopped."""
    given = {
        output: torch.view_as_complex(value).to(case.cotangents[output])
        if case.cotangents[output].is_complex()
        else value.to(case.cotangents[output])
        for output, value in cotangents.items()
    }
    finding = candidate.attempt(ask(candidate, case, cotangents=given), "backward", "under one seed")
    return None if finding.failure is not None else product(candidate, case, finding).gradients


def _coarseness(dtype: torch.dtype) -> float:
    """Of an output that is rounded more than float32: how much more."""
    return max(1.0, torch.finfo(dtype).eps / torch.finfo(torch.float32).eps)


def _scaled(operand: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    size = max(_rms(operand), 1e-3) / max(_rms(direction), 1e-30)
    return direction * size


def _rms(value: torch.Tensor) -> float:
    return float(reals(value).square().mean().sqrt())


def _moved(case: Case, by: Mapping[str, torch.Tensor]) -> Case:
    inputs, state = list(case.inputs), dict(case.state)
    for name, value in by.items():
        moved = case.operand(name).to(value.device) + value
        if name.startswith("input["):
            inputs[int(name[len("input[") : -1])] = moved
        else:
            state[name] = moved
    return replace(case, inputs=tuple(inputs), state=state)
