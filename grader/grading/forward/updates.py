"""Probes the update of buffers that are zero, beside which no error of a new statistic is small.

A running variance that lacks Bessel's correction is off by 1/n of the new statistic. Beside an old value that is a
thousand times as large, or another statistic in the same tensor, that is less than rounding.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from grader import protocol as p
from grader.grading.candidate import MODEL, Candidate, export_buffers
from grader.grading.compare import nonsmooth, small_elements
from grader.grading.compare.buffers import explain_buffers, one_factor
from grader.grading.compare.expected import Expected
from grader.grading.forward.probes import probe
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle, remembered
from grader.grading.oracle.other_inputs import room
from grader.grading.oracle.values import is_float
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis


@probe("buffers_not_updated", rank=15)
def updates_are_right(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """A buffer's new value is right if the old one is zero too."""
    matched = candidate.buffers(case)
    changed = sorted(case.updated_buffers & set(matched))
    updated = [name for name in changed if is_float(case.state[name]) and case.comparable("buffers", name)]
    if not updated:
        return None
    zeroed = _zeroed(oracle, case)
    job = candidate.script(zeroed)
    job.put_inputs("a", case.inputs)
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, seed=case.call_seed()))
    export_buffers(job, candidate, case)
    job.step(p.Drop())
    result = candidate.attempt(job, "forward", "forward with buffers of zero")
    if result.failure is not None:
        return None
    places = candidate.matching(case).places
    for name in updated:
        sealed = result.sealed.get(f"state:{MODEL}:{matched[name]}")
        value = None if sealed is None else places[name].take(sealed)
        wrong = None if value is None else _wrong(zeroed.buffers[name], value)
        if wrong is not None:
            amount, remedy = explain_buffers(zeroed, {name: value}, oracle)
            step = "a second" if any(not is_float(case.state[of]) for of in case.updated_buffers) else "one"
            what = f"with an old value of zero, buffer `{name}` is wrong after {step} forward: {wrong}"
            return diagnose("buffers_not_updated", what, where=case.place, amount=amount, remedy=remedy)
    return None


@remembered
def _zeroed(oracle: Oracle, case: Case) -> Case:
    """The case with zeros in the floating-point buffers that its forward updates, and the buffers after it.

    Integers, such as a number of steps, are as one forward leaves them: in the first step, an average over all steps is
    the new value.
    """
    before = {name: case.state[name] for name in case.updated_buffers}
    zeros = {name: torch.zeros_like(value) for name, value in before.items() if is_float(value)}
    counts = {name: case.buffers[name].reference64.to(value) for name, value in before.items() if name not in zeros}
    zeroed = replace(case, state={**case.state, **counts, **zeros})
    found = questions.buffers_for(oracle, zeroed)
    buffers = {name: replace(found[name], reduction_length=of.reduction_length) for name, of in case.buffers.items()}
    return replace(zeroed, buffers=buffers)


def _wrong(expected: Expected, value: torch.Tensor) -> str | None:
    """A text on a wrong statistic; None if it is right, or says nothing because it is not finite."""
    right = expected.reference64.cpu()
    if expected.spread is None or not expected.has_float64 or not bool(right.isfinite().all()):
        return None
    value = value.cpu().view(right.shape)
    spread = expected.spread().cpu()
    relative = (value.double() - right) / right
    allowed = nonsmooth.FACTOR * spread / right.abs() + expected.rounding
    off = relative[(relative.abs() > allowed) & (right.abs() > small_elements.LEAST)]
    factor = one_factor(off) if off.numel() >= right.numel() / 4 else None
    if factor is not None:
        return f"{off.numel()} of {right.numel()} elements are {factor:.6g} times the reference's"
    return small_elements.wrong(expected.name, value, right, lambda *_: spread, small=math.inf, share=room(1.0))
