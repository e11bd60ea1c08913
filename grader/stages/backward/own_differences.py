"""A backward beside its own forward, where a reference that draws random numbers has no values to compare with.

Under one seed, forwards on slightly moved operands draw the same numbers, and central differences of their outputs are
what the gradients must say: a mask that is drawn anew in backward, or not scaled as in forward, is found. Whether the
forward's numbers are distributed as the reference's is not looked at.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import torch

from grader import protocol as p
from grader.models import Diagnosis
from grader.remote import Finding, Script
from grader.stages.backward.vjp import export_gradients, export_outputs, product
from grader.stages.candidate import MODEL, Candidate
from grader.stages.cases import Case
from grader.stages.outcome import diagnose
from grader.stages.outputs import same_bits

STEPS = (1e-2, 5e-3)
"""Relative to the operand. A difference counts where both steps tell the same derivative."""
AGREEMENT = 1e-2
TOLERANCE = 5e-2
"""Of the derivative along a random direction: a mask of its own is off by about the derivative itself."""
DIRECTIONS = 2
MAX_OPERANDS = 8
MAX_BYTES = 256 << 20
"""Of all moved inputs and their outputs together: fewer directions where the tensors are large."""


def differences(candidate: Candidate, case: Case) -> Diagnosis | None:
    """Every operand's gradient along random directions. None too where the seed does not fix what is drawn."""
    seed = secrets.randbits(62)
    operands = candidate.operands(case)
    wanted = [name for name, of in case.gradients.items() if of is not None and name in operands][:MAX_OPERANDS]
    nbytes = sum(value.nbytes for value in case.cotangents.values()) + sum(case.operand(name).nbytes for name in wanted)
    affordable = max(1, MAX_BYTES // (2 * len(STEPS) * max(nbytes, 1)))
    moves = [(name, _direction(case.operand(name))) for name in wanted for _ in range(DIRECTIONS)][:affordable]
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=True)
    script.step(_forward(case, "a", "a", seed, grad=True))
    cotangents = script.cotangents(case.cotangents)
    script.step(p.Backward(tape="a", grads="a", cotangents=cotangents, wrt=tuple(operands.values())))
    export_outputs(script, case, "a")
    export_gradients(script, candidate, case, "a", case.wrt)
    script.put_inputs("b", case.inputs, requires_grad=True)
    _again(script, case, "b", seed)
    for turn, (name, direction) in enumerate(moves):
        for step in STEPS:
            for sign in (1, -1):
                key = f"{turn} {step} {sign}"
                _put_moved(script, candidate, case, name, sign * step * direction)
                _again(script, case, key, seed)
    script.step(p.Drop())
    finding = candidate.attempt(script, "backward", "forwards under one seed")
    if finding.failure is not None or not _repeats(case, finding):
        return None
    gradients = product(candidate, case, finding).gradients
    for turn, (name, direction) in enumerate(moves):
        gradient = gradients[name]
        coarse, fine = (_difference(case, finding, turn, step) for step in STEPS)
        if gradient is None or abs(coarse - fine) > AGREEMENT * abs(fine):
            continue
        told = float((gradient.double() * direction.double()).sum())
        if abs(told - fine) > TOLERANCE * max(abs(fine), abs(told)):
            return diagnose(
                "inconsistent_with_forward",
                f"gradient of `{case.operand_names[name]}` is not that of its own forward: under one seed, along a "
                f"random direction, the outputs move by {fine:.4g} and the gradient says {told:.4g}: use the mask that "
                "forward drew, with forward's scale",
            )
    return None


def _direction(value: torch.Tensor) -> torch.Tensor:
    size = float(value.double().square().mean().sqrt())
    return torch.randn_like(value) * max(size, 1e-3)


def _put_moved(script: Script, candidate: Candidate, case: Case, name: str, by: torch.Tensor) -> None:
    state: Mapping[str, torch.Tensor] = case.state
    inputs = list(case.inputs)
    if name.startswith("input["):
        inputs[int(name[len("input[") : -1])] = case.operand(name) + by
    else:
        state = {**state, name: state[name] + by}
    names = candidate.prepare(case).names
    script.set_state(MODEL, {names[key]: value for key, value in state.items() if key in names})
    script.put_inputs("b", inputs, requires_grad=True)


def _forward(case: Case, key: str, tape: str, seed: int, *, grad: bool) -> p.Forward:
    return p.Forward(
        model=MODEL,
        inputs=key,
        tape=tape,
        training=case.training,
        grad=grad,
        seed=seed,
        clone_inputs=case.clone_inputs,
    )


def _again(script: Script, case: Case, tape: str, seed: int) -> None:
    script.step(_forward(case, "b", tape, seed, grad=True))
    export_outputs(script, case, tape)


def _repeats(case: Case, finding: Finding) -> bool:
    return all(same_bits(*(finding.sealed[f"output:{key}:{name}"] for key in "ab")) for name in case.cotangents)


def _difference(case: Case, finding: Finding, turn: int, step: float) -> float:
    """Of the outputs' product with grad_output, by the step."""
    total = 0.0
    for name, cotangent in case.cotangents.items():
        up, down = (finding.sealed[f"output:{turn} {step} {sign}:{name}"].double() for sign in (1, -1))
        total += float(((up - down) * cotangent.to(up.device).double()).sum())
    return total / (2 * step)
