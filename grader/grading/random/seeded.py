"""Judges a random reference under a seed: values that it leaves alone, and derivatives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader import protocol as p
from grader.grading import chance
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.parts import export_buffers
from grader.grading.candidate.vjp import add_graph_forward, product, product_job
from grader.grading.compare.blocks import LARGE_BYTES, reals, same_bits
from grader.grading.compare.nonsmooth import PERTURBATION_ULPS
from grader.grading.control import reference_passes
from grader.grading.messages import diagnose
from grader.grading.oracle.case import Case, export_outputs, nbytes_of
from grader.grading.oracle.evaluation import MODEL, Evaluation
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.perturbed_runs import PERTURBED_RUNS
from grader.grading.oracle.trackers import Trackers
from grader.grading.oracle.values import perturbed, perturbed_state
from grader.machine.backends import backend
from grader.verdict.models import Diagnosis

STEP = 1e-3
"""Step relative to an operand's RMS. Rounding in float32 adds 1e-4 to a derivative, curvature 1e-6. Steps of STEP and
2 STEP are compared."""
STEPS = (2, -2, 1, -1, 0)
"""Multiples of STEP at which the forward runs."""
BEND_NOISE = 6.0
"""Rounding of a difference of bends, in that of a derivative: the root of 70 over that of 2."""
TOLERANCE = 5e-3
"""Relative error of a directional derivative: 50 times rounding; a missing scale of dropout is off by p."""
TRIALS = 6
"""Pairs of grad_output and direction. An error of 3 TOLERANCE passes all of them by chance once in 2000. At most as
many operands are moved alone, each for one pair first."""


def own_values(candidate: Candidate, case: Case) -> Case | None:
    """The case with the candidate's values, under a seed of its own, where the reference is random.

    None where equal calls give other outputs, or one raises. Raises Stopped.
    """
    case = case.alike(forward_seed=chance.new_seed())
    own, again = _evaluate(candidate, case), _evaluate(candidate, case)
    if own is None or again is None or not all(same_bits(own.outputs[n], again.outputs[n]) for n in case.outputs):
        return None
    trackers = Trackers(own, None, has_float64=True)
    for _ in range(PERTURBED_RUNS):
        inputs, state = perturbed(case.inputs), perturbed_state(case.state)
        run = _evaluate(candidate, replace(case, inputs=tuple(inputs), state=state))
        if run is None or any((run.gradients[name] is None) != (own.gradients[name] is None) for name in case.wrt):
            return None
        trackers.add(run)
    longest = max(
        expected.reduction_length
        for expected in (*case.outputs.values(), *case.gradients.values())
        if expected is not None
    )
    gradients = trackers.expected("gradients", lambda _: longest, case.operand_names)
    return replace(
        case,
        outputs=trackers.expected("outputs", lambda _: longest),
        buffers={**case.buffers, **trackers.expected("buffers", lambda _: longest)},
        gradients={
            name: gradients.get(name) if expected is not None or name in case.optional else None
            for name, expected in case.gradients.items()
        },
        values_comparable=True,
    )


def _evaluate(candidate: Candidate, case: Case) -> Evaluation | None:
    """One forward and backward, by the reference's names."""
    job = product_job(candidate, case)
    export_outputs(job, case, "a")
    export_buffers(job, candidate, case)
    result = candidate.attempt(job, "backward", "forward and backward under one seed")
    outputs = {
        name: value for name in case.outputs if (value := result.sealed.get(p.output_source("a", name))) is not None
    }
    if result.failure is not None or outputs.keys() != case.outputs.keys():
        return None
    sources = {ours: p.state_source(MODEL, theirs) for ours, theirs in candidate.buffers(case).items()}
    buffers = {
        name: candidate.taken(case, name, result.sealed[source])
        for name, source in sources.items()
        if source in result.sealed
    }
    return Evaluation(outputs, product(candidate, case, result).gradients, buffers)


def check_gradients(candidate: Candidate, case: Case) -> Diagnosis | None:
    """An error if gradients are not the derivatives of the candidate's forward under the case's seed.

    A warning if no derivative can be measured. Raises Stopped.
    """
    names = [
        name for name, expected in case.gradients.items() if expected is not None and name in candidate.operands(case)
    ]
    if not names:
        return None
    for _ in range(2):
        error = _relative_error(candidate, case, names)
        if error is None:
            why = "under one seed the outputs jump where an operand moves by a thousandth"
            return _not_compared(case, why, "make the outputs change smoothly with the operands, as the reference's do")
        if error <= TOLERANCE:
            return _check_alone(candidate, case, names) if len(names) > 1 else None
    alone = _errors_alone(candidate, case, names)
    worst = max(names, key=lambda name: alone[name])
    return _inconsistent(case, worst, alone[worst])


def _check_alone(candidate: Candidate, case: Case, names: Sequence[str]) -> Diagnosis | None:
    """An error of one operand, which does not show beside another that moves the outputs more."""
    alone = _errors_alone(candidate, case, chance.draw.sample(names, min(TRIALS, len(names))))
    worst = max(alone, key=lambda name: alone[name])
    error = (_relative_error(candidate, case, [worst]) or 0.0) if alone[worst] > TOLERANCE else 0.0
    return _inconsistent(case, worst, error) if error > TOLERANCE else None


def _inconsistent(case: Case, name: str, error: float) -> Diagnosis:
    return diagnose(
        "inconsistent_with_forward",
        f"gradient of `{case.operand_names[name]}` is not the derivative of its own forward under one seed",
        where=case.where,
        amount=f"directional derivatives are off by {error:.2g} of their size",
        remedy="use in backward what forward drew, with its scale, and check the derivative of what train() alone does",
    )


def _errors_alone(candidate: Candidate, case: Case, names: Sequence[str]) -> dict[str, float]:
    """The error of one directional derivative along each operand alone, 0 where none is seen."""
    return {name: _relative_error(candidate, case, [name], trials=1) or 0.0 for name in names}


def check_other_sizes(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], checked: Case, so_far: Sequence[Diagnosis]
) -> list[Diagnosis]:
    """`check_gradients` for variants other than `checked`, if that one was compared. Raises Stopped."""
    if any(diagnosis.code in ("random_not_seeded", "not_comparable") for diagnosis in so_far):
        return []
    for case in cases:
        tensors = (*case.cotangents.values(), *map(case.operand, case.wrt))
        large = nbytes_of(tensors) > LARGE_BYTES
        if case.values_comparable or case.variant == checked.variant or large:
            continue
        check = partial(check_gradients, case=case.alike(forward_seed=chance.new_seed()))
        diagnosis = check(candidate)
        wrong = diagnosis is not None and diagnosis.severity == "error"
        if diagnosis and wrong and reference_passes(candidate, oracle, case, "other sizes", check):
            return [diagnosis]
    return []


def reference_inconsistent(case: Case) -> Diagnosis:
    """A warning for a reference that fails the check itself."""
    why = "the reference's gradients are not the derivatives of its own forward, as with detach()"
    return _not_compared(case, why, "check by hand that the backward detaches what the reference detaches")


def _not_compared(case: Case, why: str, remedy: str) -> Diagnosis:
    what = f"the reference draws random numbers, and {why}: no gradient was compared with its own forward"
    return diagnose("not_comparable", what, where=case.where, remedy=remedy, severity="warning")


def _relative_error(candidate: Candidate, case: Case, names: Sequence[str], trials: int = TRIALS) -> float | None:
    """Mean error of directional derivatives relative to their size; None where no trial sees one."""
    seen = [trial for _ in range(trials) if (trial := _trial(candidate, case, names)) is not None]
    error, size = (sum(column) for column in zip(*seen, strict=True)) if seen else (0.0, 0.0)
    ratio = error / size if size else 0.0
    return (ratio if math.isfinite(ratio) else math.inf) if seen else None


def _trial(candidate: Candidate, case: Case, names: Sequence[str]) -> tuple[float, float] | None:
    """Error of <g, d> and its usual size (norm of u * J d, and rounding). None where less than half of u counts."""
    operands = {name: case.operand(name).to(backend(candidate.device).torch_device) for name in names}
    direction = {
        name: torch.randn_like(operand) * max(_rms(reals(operand)), STEP) for name, operand in operands.items()
    }
    job = candidate.script(case)
    for factor in STEPS:
        moved = _moved(case, direction, factor * STEP)
        candidate.reset(job, moved)
        job.put_inputs("a", moved.inputs, requires_grad=True)
        add_graph_forward(job, case, "a", tape=str(factor))
        export_outputs(job, case, str(factor))
    sealed = candidate.attempt(job, "backward", "forwards under one seed").sealed
    cotangents, expected, size, kept, drawn = {}, 0.0, 0.0, 0.0, 0.0
    for name, like in case.cotangents.items():
        runs = [sealed.get(p.output_source(factor, name)) for factor in STEPS]
        if any(run is None for run in runs):
            return None
        at = [reals(run) for run in runs if run is not None]
        noise = PERTURBATION_ULPS * torch.finfo(like.dtype).eps / STEP * _rms(at[-1].nan_to_num(0.0, 0.0, 0.0))
        fine, steady = derivatives(at, noise)
        given = reals(torch.randn_like(like, device=fine.device))
        drawn += float(given.square().sum())
        given = torch.where(steady, given, 0.0)
        kept += float(given.square().sum())
        terms = given * torch.where(steady, fine, 0.0)
        expected += float(terms.sum())
        size += float(terms.square().sum()) + (noise / TOLERANCE) ** 2 * float(given.square().sum())
        cotangents[name] = (torch.view_as_complex(given) if like.is_complex() else given).to(like)
    if 2 * kept < drawn:
        return None
    result = candidate.attempt(
        product_job(candidate, case, cotangents=cotangents), "backward", "backward under one seed"
    )
    if result.failure is not None:
        return None
    gradients = product(candidate, case, result).gradients
    product_sum = sum(
        float((reals(g) * reals(d)).sum()) for n, d in direction.items() if (g := gradients[n]) is not None
    )
    return abs(product_sum - expected), math.sqrt(size)


def _rms(value: torch.Tensor) -> float:
    return float(value.square().mean().sqrt()) if value.numel() else 0.0


def _moved(case: Case, direction: Mapping[str, torch.Tensor], step: float) -> Case:
    """The case with operands moved by `step` along a direction."""
    moved = {name: case.operand(name).to(value.device) + step * value for name, value in direction.items()}
    inputs = tuple(moved.get(f"input[{index}]", value) for index, value in enumerate(case.inputs))
    state = {name: moved.get(name, value) for name, value in case.state.items()}
    return replace(case, inputs=inputs, state=state)


def derivatives(at: Sequence[torch.Tensor], noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(derivatives of a function by its values at STEPS, which of them hold), where rounding adds `noise`.

    Slopes of both steps must agree. They do where a non-smooth point in the middle, such as a ReLU's, halves both, but
    there twice the step bends the function twice as much, and elsewhere four times.
    """
    up2, down2, up, down, middle = at
    coarse, fine = (up2 - down2) / (4 * STEP), (up - down) / (2 * STEP)
    unlike = (up2 - 2 * middle + down2) - 4 * (up - 2 * middle + down)
    bends = unlike.abs() / (2 * STEP) > TOLERANCE * fine.abs() + BEND_NOISE * noise
    return fine, ((coarse - fine).abs() <= TOLERANCE * fine.abs() + noise) & ~bends
