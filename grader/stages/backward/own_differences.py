"""A backward beside its own forward, where a reference that draws random numbers has no values to compare with.

Under one seed, forwards on slightly moved operands draw the same numbers, and central differences of their outputs are
the forward's derivative along the move. A backward whose grad_output is that very derivative must tell its square: a
mask that is drawn anew in backward, or not scaled as in forward, is off by its share of the outputs, and no chance can
hide it, as all terms of the sum have one sign.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import NamedTuple

import torch

from grader.models import Diagnosis
from grader.stages.backward.vjp import add_forward, ask, export_outputs, product
from grader.stages.candidate import Candidate
from grader.stages.cases import Case
from grader.stages.outcome import diagnose
from grader.stages.passes import reals

STEPS = (1e-2, 5e-3)
"""Relative to the operand. An output counts where both tell the same derivative: no kink lies between."""
AGREEMENT = 1e-2
ROUNDING = 1e-5
"""Relative to the outputs' RMS: an output that moves by less tells nothing."""
LEAST_SHARE = 0.25
"""Of the squares of all that move: where fewer outputs count, nothing is said."""
TOLERANCE = 1e-2
"""Of the derivative's square. A mask of its own with probability p is off by p where it cuts all of the outputs."""
DIRECTIONS = 9
"""Along which one that is off is asked again: a kink between the steps of a few outputs may shift one of them."""
MAX_OPERANDS = 64
MAX_BYTES = 1 << 30
"""Of all outputs that are looked at: fewer operands where they are large."""


class _Derivative(NamedTuple):
    """Of the outputs, along one move of one operand."""

    direction: torch.Tensor
    cotangents: dict[str, torch.Tensor]
    """The derivative itself; zero in the outputs that do not count."""
    squared: float


def differences(candidate: Candidate, case: Case) -> Diagnosis | None:
    """Every operand's gradient along a random direction. `case`: in the candidate's own terms. Raises Stopped."""
    wanted = [name for name, of in case.gradients.items() if of is not None and name in candidate.operands(case)]
    nbytes = 2 * len(STEPS) * sum(value.nbytes for value in case.cotangents.values())
    some = wanted[: max(1, min(MAX_OPERANDS, MAX_BYTES // max(nbytes, 1)))]
    off = {name: told for name in some if not abs((told := _told(candidate, case, name)) - 1) <= TOLERANCE}
    for name in sorted(off, key=lambda name: -abs(off[name] - 1)):
        told = statistics.median(_told(candidate, case, name) for _ in range(DIRECTIONS))
        if not abs(told - 1) <= TOLERANCE:
            return diagnose(
                "inconsistent_with_forward",
                f"gradient of `{case.operand_names[name]}` is not that of its own forward: under one seed, along a "
                f"random direction, it tells {told:.4g} times the change of the outputs: use what forward drew, with "
                "forward's scale, and check the derivative of what train() alone computes",
            )
    return None


def _told(candidate: Candidate, case: Case, name: str) -> float:
    """By how many times the outputs' change the gradient tells it; 1 where that cannot be seen."""
    derivative = _derivative(candidate, case, name)
    if derivative is None:
        return 1.0
    finding = candidate.attempt(ask(candidate, case, cotangents=derivative.cotangents), "backward", "under one seed")
    gradient = None if finding.failure is not None else product(candidate, case, finding).gradients[name]
    if gradient is None:
        return 1.0
    told = float((reals(gradient) * reals(derivative.direction)).sum()) / derivative.squared
    return told if math.isfinite(told) else math.inf


def _derivative(candidate: Candidate, case: Case, name: str) -> _Derivative | None:
    """None where too few outputs count, or a forward raises or returns other tensors."""
    value = case.operand(name).to(candidate.device.value)
    direction = torch.randn_like(value) * max(float(reals(value).square().mean().sqrt()), 1e-3)
    moves = {f"{step} {sign}": sign * step * direction for step in STEPS for sign in (1, -1)}
    script = candidate.script(case)
    for key, move in moves.items():
        moved = _moved(case, name, move)
        candidate.reset(script, moved)
        script.put_inputs("a", moved.inputs, requires_grad=True)
        add_forward(script, case, "a", tape=key)
        export_outputs(script, case, key)
    finding = candidate.attempt(script, "backward", "forwards under one seed")
    if not all(f"output:{key}:{output}" in finding.sealed for key in moves for output in case.cotangents):
        return None

    def difference(step: float, output: str) -> torch.Tensor:
        up, down = (finding.sealed[f"output:{step} {sign}:{output}"] for sign in (1, -1))
        return (reals(up) - reals(down)) / (2 * step)

    cotangents, kept, total = {}, 0.0, 0.0
    for output, given in case.cotangents.items():
        coarse, fine = (difference(step, output) for step in STEPS)
        size = float(reals(finding.sealed[f"output:{STEPS[-1]} 1:{output}"]).square().mean().sqrt())
        counts = ((coarse - fine).abs() <= AGREEMENT * fine.abs()) & (fine.abs() * STEPS[-1] >= ROUNDING * size)
        exact = torch.where(counts, fine + (fine - coarse) / 3, 0.0)
        kept, total = kept + float(exact.square().sum()), total + float(fine.square().sum())
        cotangents[output] = torch.view_as_complex(exact).to(given) if given.is_complex() else exact.to(given)
    return _Derivative(direction, cotangents, kept) if kept and kept >= LEAST_SHARE * total else None


def _moved(case: Case, name: str, by: torch.Tensor) -> Case:
    value = case.operand(name).to(by.device) + by
    if not name.startswith("input["):
        return replace(case, state={**case.state, name: value})
    index = int(name[len("input[") : -1])
    return replace(case, inputs=(*case.inputs[:index], value, *case.inputs[index + 1 :]))
