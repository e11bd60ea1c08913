"""The reference's gradients through each of several outputs alone.

Beside an output whose gradient is large, nobody sees that of a small one: of a scale that a quantizer returns, of a
loss beside logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from grader.errors import ReferenceRefused
from grader.grading.compare.expected import Expected
from grader.grading.compare.nonsmooth import PERTURBATION_ULPS
from grader.grading.oracle.case import Case
from grader.grading.oracle.comparability import is_noise
from grader.grading.oracle.evaluation import Pass
from grader.grading.oracle.first_look import absent
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.perturbed_runs import PERTURBED_RUNS, perturbed_runs
from grader.grading.oracle.remembered import derived, remembered
from grader.grading.oracle.variations import compared


def through_each_output(oracle: Oracle, case: Case) -> Mapping[str, Case]:
    """The case with the grad_output of each output alone, by the output's name.

    Empty where random numbers matter, and where the reference's backward needs all outputs. Operands whose gradient is
    None, or decided by rounding or ties, have None.
    """
    if not case.values_comparable or case.forward_seed is not None:
        return {}
    try:
        alone = _gradients(oracle, case)
    except ReferenceRefused:
        return {}
    return {
        name: replace(case, cotangents={name: case.cotangents[name]}, gradients=gradients)
        for name, gradients in alone.items()
    }


@remembered
def idle_outputs(oracle: Oracle, case: Case) -> frozenset[str]:
    """Outputs that require a gradient and have none to pass on: of no elements, or rounded.

    Only those without elements where random numbers matter, and where the reference's backward needs all outputs.
    """
    empty = frozenset(name for name, cotangent in case.cotangents.items() if not cotangent.numel())
    if not case.values_comparable or case.forward_seed is not None:
        return empty
    others = [name for name in case.cotangents if name not in empty]
    passes = [replace(Pass.of(case), cotangents={name: case.cotangents[name]}) for name in others]
    try:
        runs = list(oracle.ask(case, passes))
    except ReferenceRefused:
        return empty
    alone = zip(others, runs, strict=True)
    return empty | {name for name, run in alone if all(map(absent, run.gradients.values()))}


@derived
def _gradients(oracle: Oracle, case: Case) -> dict[str, dict[str, Expected | None]]:
    """The expected gradients by output and operand."""
    passes = [replace(Pass.of(case), cotangents={name: cotangent}) for name, cotangent in case.cotangents.items()]
    ask, turns = partial(oracle.ask, case), range(1 if oracle.is_slow(case) else PERTURBED_RUNS)
    found = {}
    for name, one, trackers in zip(case.cotangents, passes, list(compared(oracle, case, passes)), strict=True):
        for run in perturbed_runs(ask, one, turns, PERTURBATION_ULPS):
            trackers.add(run)
        found[name] = _as_in(case, trackers.expected("gradients", lambda _: 1.0, case.operand_names))
    return found


def _as_in(case: Case, gradients: Mapping[str, Expected]) -> dict[str, Expected | None]:
    """The gradients of the case's operands, with their reduction lengths."""
    return dict.fromkeys(case.wrt) | {
        name: replace(gradient, reduction_length=usual.reduction_length)
        for name, gradient in gradients.items()
        if (usual := case.gradients[name]) is not None and usual.ties is None and not is_noise(gradient)
    }
