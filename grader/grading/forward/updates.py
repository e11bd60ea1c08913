"""Probes the update of buffers: of zeros, and over several forwards.

Beside an old value of zero, no error of a new statistic is small: a running variance that lacks Bessel's correction is
off by 1/n of it, and beside an old value that is a thousand times as large, that is less than rounding. Several
forwards reach what one does not: a maximum that must be kept, the second row of a cache, the end of a ring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.grading.candidate.buffers import explain_buffers, one_factor
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_buffers, check_output
from grader.grading.compare import nonsmooth, small_elements, tolerance
from grader.grading.compare.expected import Expected
from grader.grading.forward.one_forward import one_forward
from grader.grading.forward.probes import probe
from grader.grading.messages import diagnose, first_line
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.other_inputs import room
from grader.grading.oracle.remembered import derived
from grader.grading.oracle.trackers import Trackers
from grader.grading.oracle.values import OTHER_DRAWS, is_float
from grader.verdict.models import Diagnosis

ORDINALS = ("first", "second", "third")
EVERY_FORWARD = "compute outputs and new state from the state that the forward before left"


@probe("buffers_not_updated", rank=15)
def updates_are_right(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """A buffer's new value is right if the old one is zero too, and after forwards on other inputs."""
    changed = sorted(case.updated_buffers & candidate.buffers(case).keys())
    updated = [name for name in changed if case.comparable("buffers", name)]
    if not updated:
        return None
    floats = [name for name in updated if is_float(case.state[name])]
    return (floats and _from_zeros(candidate, oracle, case, floats)) or _after_others(candidate, oracle, case)


def _from_zeros(candidate: Candidate, oracle: Oracle, case: Case, updated: Sequence[str]) -> Diagnosis | None:
    """A diagnosis if one of these buffers is wrong after a forward that began with zeros."""
    zeroed = _zeroed(oracle, case)
    result = candidate.attempt(one_forward(candidate, zeroed), "forward", "forward with buffers of zero")
    if result.failure is not None:
        return None
    matched, places = candidate.buffers(case), candidate.matching(case).places
    for name in updated:
        sealed = result.sealed.get(p.state_source(MODEL, matched[name]))
        value = None if sealed is None else places[name].take(sealed)
        wrong = None if value is None else _wrong_buffer(zeroed.buffers[name], value)
        if wrong is not None:
            amount, remedy = explain_buffers(zeroed, {name: value}, oracle)
            step = "a second" if any(not is_float(case.state[buffer]) for buffer in case.updated_buffers) else "one"
            what = f"with an old value of zero, buffer `{name}` is wrong after {step} forward: {wrong}"
            return diagnose("buffers_not_updated", what, where=case.where, amount=amount, remedy=remedy)
    return None


def _after_others(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """A diagnosis if outputs or buffers are wrong after forwards on other inputs."""
    for earlier, last, is_new in _chains(oracle, case) if case.values_comparable else ():
        job = one_forward(candidate, last, earlier=earlier)
        result = candidate.attempt(job, "forward", "several forwards on other inputs")
        if result.failure is not None:
            wrong = f"it raises {first_line(result.failure)}"
        else:
            checks = [check_output(last, result, name) for name in last.outputs]
            checks += check_buffers(candidate, last, result)
            wrong = next((str(check.message) for check in checks if check.status == "failed"), "")
        if wrong:
            which = f"a forward is wrong after {len(earlier)} forwards on other inputs"
            if is_new:
                which = f"the {ORDINALS[len(earlier)]} forward of a new model is wrong"
            what = f"{which}: {wrong}"
            return diagnose("buffers_not_updated", what, where=case.where, remedy=EVERY_FORWARD)
    return None


class _Chain(NamedTuple):
    """Several forwards in a row: the inputs of all but the last, and the last one as a case."""

    earlier: Sequence[Sequence[object]]
    last: Case
    is_new: bool
    """Whether the first of these forwards starts from the constructor's buffers."""


@derived
def _chains(oracle: Oracle, case: Case) -> list[_Chain]:
    """Forwards in two orders, and the first ones of a new model; none if the reference takes no more forwards.

    Two orders, since a running maximum equals that of the last forward alone if the last inputs are the largest. A new
    model is asked too, since an epsilon, a bias correction or a growing length shows in the first steps only. It is not
    asked if no output depends on what is updated, as in batch norm's train().
    """
    inputs: list[Sequence[object]] = [oracle.models.draw(case.variant)[1] for _ in range(OTHER_DRAWS)]
    many = inputs * (1 if oracle.is_slow(case) else 2)  # a queue of rows holds some batches, a cache some tokens
    found = _after(oracle, case, [[*many, case.inputs], [case.inputs, *many]])
    if found and not _same(case, found[0].last):
        firsts = [[*inputs[:count], case.inputs] for count in range(len(ORDINALS))]
        found += _after(oracle, _new(oracle, case), firsts, is_new=True)
    return found


def _same(case: Case, after: Case) -> bool:
    """Whether the outputs are the same as without the forwards on other inputs before."""
    outputs = {name: expected.reference64 for name, expected in after.outputs.items()}
    return all(tolerance.passes(expected, outputs[name].to(expected.dtype)) for name, expected in case.outputs.items())


def _after(
    oracle: Oracle, case: Case, orders: Sequence[Sequence[Sequence[object]]], *, is_new: bool = False
) -> list[_Chain]:
    """The chain of forwards for each of these orders of inputs; none if the reference refuses one."""
    passes = [
        Pass(MODEL, last, case.state, training=case.training, earlier=tuple(earlier)) for *earlier, last in orders
    ]
    try:
        found = list(variations.compared(oracle, case, passes))
    except ProblemError:  # a cache without room
        return []
    return [
        _Chain(earlier, _expecting(case, last, trackers), is_new)
        for (*earlier, last), trackers in zip(orders, found, strict=True)
    ]


def _new(oracle: Oracle, case: Case) -> Case:
    """The case with the constructor's values in what its forward updates."""
    constructed = oracle.models.constructed(case)
    return replace(case, state={**case.state, **{name: constructed[name] for name in case.updated_buffers}})


def _expecting(case: Case, inputs: Sequence[object], trackers: Trackers) -> Case:
    """The case with these inputs, and with the outputs and buffers that the reference gave for them."""
    outputs, found = variations.with_case_errors(case, trackers), trackers.expected("buffers", lambda _: 1.0)
    return replace(case, inputs=tuple(inputs), outputs=outputs, buffers=_as_long(case, found))


def _as_long(case: Case, found: Mapping[str, Expected]) -> dict[str, Expected]:
    """These expected buffers, with the reduction lengths that were found for the case's own."""
    return {
        name: replace(found[name], reduction_length=expected.reduction_length)
        for name, expected in case.buffers.items()
    }


@derived
def _zeroed(oracle: Oracle, case: Case) -> Case:
    """The case with zeros in the floating-point buffers that its forward updates, and the buffers after it.

    Integers, such as a number of steps, are as one forward leaves them: in the first step, an average over all steps is
    the new value.
    """
    before = {name: case.state[name] for name in case.updated_buffers}
    zeros = {name: torch.zeros_like(value) for name, value in before.items() if is_float(value)}
    counts = {name: case.buffers[name].reference64.to(value) for name, value in before.items() if name not in zeros}
    zeroed = replace(case, state={**case.state, **counts, **zeros})
    return replace(zeroed, buffers=_as_long(case, variations.buffers_for(oracle, zeroed)))


def _wrong_buffer(expected: Expected, value: torch.Tensor) -> str | None:
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
    fault = small_elements.wrong(value, right, lambda *_: spread, small=math.inf, share=room(1.0))
    return None if fault is None else f"{expected.name} {fault}"
