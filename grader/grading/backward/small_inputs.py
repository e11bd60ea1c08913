"""Asks for gradients on inputs a thousandth as large, where a wrong epsilon shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from grader.errors import ReferenceLost, ReferenceOutOfMemory, ReferenceRefused
from grader.grading.backward.vjp import ask, product
from grader.grading.budget import Pace
from grader.grading.candidate import Candidate
from grader.grading.compare import tolerance
from grader.grading.compare.expected import EPSILON, Expected
from grader.grading.oracle.case import Case
from grader.grading.oracle.control import reference_passes
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.oracle import Oracle, remembered
from grader.grading.oracle.other_inputs import SCALED_DOWN, other_inputs, room
from grader.grading.oracle.trackers import track
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis


def judge_small_inputs(candidate: Candidate, oracle: Oracle, cases: Sequence[Case]) -> Diagnosis | None:
    """A gradient that is wrong on small inputs only, of the first comparable case. Raises Stopped."""
    case = next((case for case in cases if case.values_comparable), None)
    if case is None or not case.wrt or case.released or oracle.is_slow(case):
        return None
    try:
        small = _small(oracle, case)
    except (ReferenceLost, ReferenceOutOfMemory):  # by inputs that are not the problem's
        return None
    if small is None:
        return None

    def judge(one: Candidate) -> Diagnosis | None:
        return _judge(one, small)

    diagnosis, key = judge(candidate), ("small inputs judged", case.seed, case.training)
    return diagnosis if diagnosis and reference_passes(oracle, key, judge, ("error",)) else None


@remembered
def _small(oracle: Oracle, case: Case) -> Case | None:
    """The case with small inputs and their gradients; None if the reference does not take them."""
    traits = oracle.traits(case)
    other = next((one.case for one in other_inputs(oracle, case) if one.change == SCALED_DOWN), None)
    if other is None or not traits.has_float64:
        return None
    plain = Pass(MODEL, other.inputs, other.state, case.cotangents, case.wrt, case.training)
    pace = Pace(oracle.budget.product, oracle.clock)
    try:
        tf32 = oracle.precision.meaning.tf32
        _, trackers = track(partial(oracle.ask, case), plain, traits, oracle.device, pace=pace, tf32=tf32)
    except ReferenceRefused:
        return None
    found = trackers.expected("gradients", lambda _: 1.0, case.operand_names)
    gradients = {name: _tolerant(found, case.gradients, name) for name in case.gradients}
    return replace(other, gradients=gradients)


def _tolerant(found: Mapping[str, Expected], usual: Mapping[str, Expected | None], name: str) -> Expected | None:
    """The gradient with room for another algorithm in every rule; None if it is not finite, or noise in either case."""
    expected, drawn = found.get(name), usual[name]
    if expected is None or drawn is None or not bool(expected.reference64.isfinite().all()):
        return None
    digits_lost = (tolerance.BASELINE_FACTOR_L2 * room(1.0) / EPSILON) ** 2
    return replace(expected, reduction_length=drawn.reduction_length + digits_lost)


def _judge(candidate: Candidate, case: Case) -> Diagnosis | None:
    result = candidate.attempt(ask(candidate, case), "backward", "backward for small inputs")
    if result.failure is not None:
        return None
    compared = {
        name: (expected, gradient)
        for name, gradient in product(candidate, case, result).gradients.items()
        if gradient is not None and (expected := case.gradients[name]) is not None
    }
    for name, check in zip(compared, tolerance.check_each(list(compared.values())), strict=True):
        if check.status == "failed":
            return diagnose(
                "grad_wrong",
                f"gradient of `{case.operand_names[name]}` is right for drawn inputs, and for {SCALED_DOWN} has a "
                f"relative RMS error of {check.rel_rms_error:.2g}",
                where=f"variant {case.name}",
                stage="backward",
                remedy="add the reference's epsilon, of the same size and in the same place, in the backward too",
            )
    return None
