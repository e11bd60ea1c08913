"""A submission's own values under one seed, for the experiments where a reference draws random numbers.

Such a reference has no values to compare with. But under one seed a submission draws the same numbers in every call, so
that its gradients must stay what they are, whatever an experiment does around them. Whether they are right is asked of
its own forward (`own_differences`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from grader.grading.backward.experiments import Cases
from grader.grading.backward.vjp import add_product, export_outputs, product
from grader.grading.candidate import MODEL, Candidate, export_buffers
from grader.grading.compare import blocks
from grader.grading.compare.outputs import same_bits
from grader.grading.compare.tolerance import Expected
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import perturbed, perturbed_state

PERTURBED_RUNS = 3


class _Run(NamedTuple):
    """By the reference's names; None or absent: there is none."""

    outputs: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor | None]


def in_own_terms(candidate: Candidate, cases: Cases) -> Cases:
    """The cases with the candidate's values, where the reference has none to compare and a seed fixes the candidate's.

    Other cases as they are. Raises Stopped.
    """
    if cases.first.values_comparable:
        return cases
    first, second, constant = (own_case(candidate, case) for case in (cases.first, cases.second, cases.constant))
    if first is None or second is None or constant is None:
        return cases
    return replace(cases, first=first, second=second, constant=constant)


def own_case(candidate: Candidate, case: Case) -> Case | None:
    """A case under a seed of its own; None where the same call gives other outputs, or raises. Raises Stopped."""
    case = replace(case, forward_seed=secrets.randbits(62))
    moved = [
        replace(
            case,
            inputs=tuple(perturbed(case.inputs, candidate.device)),
            state=perturbed_state(case.state, candidate.device),
        )
        for _ in range(PERTURBED_RUNS)
    ]
    runs: list[_Run] = []
    for of in (case, case, *moved):
        run = _run(candidate, of)
        if run is None or run.outputs.keys() != case.outputs.keys():
            return None
        runs.append(run)
        if len(runs) == 2 and not all(same_bits(run.outputs[name], runs[0].outputs[name]) for name in run.outputs):
            return None
    return replace(
        case,
        outputs={name: _expected(of, [run.outputs[name] for run in runs]) for name, of in case.outputs.items()},
        buffers={
            name: _expected(of, [run.buffers[name] for run in runs]) if name in runs[0].buffers else of
            for name, of in case.buffers.items()
        },
        gradients={name: _gradient(case, name, [run.gradients[name] for run in runs]) for name in case.wrt},
        values_comparable=True,
    )


def _run(candidate: Candidate, case: Case) -> _Run | None:
    script = candidate.script(case)
    add_product(script, candidate, case, "a")
    export_outputs(script, case, "a")
    export_buffers(script, candidate, case)
    finding = candidate.attempt(script, "backward", "forward and backward under one seed")
    if finding.failure is not None:
        return None
    outputs = {name: finding.sealed.get(f"output:a:{name}") for name in case.outputs}
    buffers = {
        ours: finding.sealed[source]
        for ours, theirs in candidate.buffers(case).items()
        if (source := f"state:{MODEL}:{theirs}") in finding.sealed
    }
    gradients = dict(product(candidate, case, finding).gradients)
    return _Run({name: value for name, value in outputs.items() if value is not None}, buffers, gradients)


def _gradient(case: Case, name: str, runs: Sequence[torch.Tensor | None]) -> Expected | None:
    """None also where what was drawn leaves the operand out, as a whole batch's stochastic depth does."""
    of, found = case.gradients[name], [run for run in runs if run is not None]
    if len(found) < len(runs) or (of is None and name not in case.optional):
        return None
    if of is None:
        operand = case.operand(name)
        of = Expected(case.operand_names[name], tuple(operand.shape), operand.dtype, operand)
    return _expected(of, found)


def _expected(of: Expected, runs: Sequence[torch.Tensor]) -> Expected:
    """The first run's values. How far rounding carries is told by the others, on inputs and parameters moved by it."""
    own, *others = [run.reshape(of.shape) for run in runs]
    if not (own.is_floating_point() or own.is_complex()):
        differ = [other != own for other in others]
        return replace(of, reference64=own, ambiguous=torch.stack(differ).any(0) if differ else None, spread=None)
    sizes = [blocks.baseline_error(other, own) for other in others]
    return replace(
        of,
        reference64=own,
        error_l2=max((l2 for l2, _ in sizes), default=0.0),
        error_max=max((largest for _, largest in sizes), default=0.0),
        has_float64=True,
        overflows=None,
        spread=None,
    )
