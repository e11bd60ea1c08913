"""Explains a wrong output: NaN, a missing parameter, a known mistake, or wrong values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from grader.grading.candidate import Candidate, names
from grader.grading.compare import known_mistakes, tolerance
from grader.grading.compare.parameter_matching import Matching
from grader.grading.compare.scaling import factor_text, scale_of, scale_remedy
from grader.grading.forward.narrow import judge_other_inputs
from grader.grading.forward.parameter_range import right_after_loading, right_for_fewer_parameters
from grader.grading.forward.rounded_operands import judge_rounding
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.patterns import find_output_pattern
from grader.grading.patterns.precisions import tensor_float_accuracy
from grader.verdict.models import Diagnosis
from grader.verdict.stages import TensorCheck

GELU_FORMS: tuple[tuple[Literal["gelu_tanh", "gelu_erf"], str, str, str], ...] = (
    (
        "gelu_tanh",
        "gelu_tanh_for_erf",
        "by its tanh approximation, the reference uses the exact erf form",
        "use the erf form; the largest gap between the two is 4.7e-4",
    ),
    (
        "gelu_erf",
        "gelu_erf_for_tanh",
        "in its exact erf form, the reference uses the tanh approximation",
        "use the tanh approximation; the largest gap between the two is 4.7e-4",
    ),
)
"""A substitute in the reference, the code for an output that matches it, what that output is, and the remedy."""


def _unmatched(matching: Matching, missing: Sequence[str]) -> str:
    """Which parameters neither names nor values under equal seeds pair."""
    if missing:
        return (
            f"neither names nor values under equal seeds (as they are, reordered or joined) show which of ModelNew's "
            f"{names(matching.extra)} holds the reference's {names(missing)}"
        )
    pairs = [f"{matching.places[name].name} for {name}" for name in matching.guessed]
    return f"ModelNew's {names(pairs)} are paired by order alone: neither names nor values under equal seeds agree"


def explain(candidate: Candidate, oracle: Oracle, case: Case, check: TensorCheck, sealed: torch.Tensor) -> Diagnosis:
    """The diagnosis for a wrong output, which names the mistake if it is a known one. Raises Stopped."""
    wrong, where = check.message or f"{check.name} is wrong", f"variant {case.name}"
    if "NaN or infinity" in wrong:
        return diagnose("output_nan", wrong, where=where, remedy="look for reads of unwritten memory")
    matching = candidate.matching(case)
    missing = [name for name in matching.missing if name not in case.buffers]
    if matching.guessed or (missing and matching.extra):
        remedy = (
            "give them Model's names and shapes, or create them as Model does, so that equal seeds give equal values"
        )
        return diagnose("parameters_unmatched", f"{_unmatched(matching, missing)}; {wrong}", where=where, remedy=remedy)
    if missing:
        what = f"ModelNew has no parameter for the reference's {names(missing)}; {wrong}"
        remedy = "keep names and shapes of Model's parameters"
        return diagnose("parameters_missing", what, where=where, remedy=remedy)
    narrow = known_mistakes.rounded_to(sealed, case.outputs[check.name])
    if narrow is not None:
        what = f"{check.name} was rounded to {narrow}; {wrong}"
        return diagnose("low_precision", what, where=where, remedy="compute and store it in float32")
    for substitute, code, text, remedy in GELU_FORMS:
        lookalike = known_mistakes.outputs(oracle, case, substitute).get(check.name)
        alike = None if lookalike is None else tolerance.check(lookalike, sealed)
        # Where the tolerance exceeds the gap between the two forms, both match.
        if alike and alike.status == "passed" and 2 * (alike.rel_rms_error or 0.0) < (check.rel_rms_error or math.inf):
            what = f"{check.name} matches GELU {text}; {wrong}"
            return diagnose(code, what, where=where, remedy=remedy)
    if tensor_float_accuracy(oracle, case, check.name, sealed):
        what = f"{check.name} has TensorFloat-32 accuracy; {wrong}"
        remedy = "grade with --precision tf32, or multiply in full float32"
        return diagnose("low_precision", what, where=where, remedy=remedy)
    rounded = judge_rounding(oracle, case, check.name, sealed, also=f"; {wrong}")
    if rounded is not None:
        return rounded
    for moved, expected in known_mistakes.as_constructed(oracle, case):
        if tolerance.check(expected[check.name], sealed).status == "passed":
            what = f"{wrong}; it would be right with {names(moved)} as constructed"
            remedy = f"read {names(moved)} in every forward: training changes their values"
            return diagnose("output_wrong", what, where=where, remedy=remedy)
    if (check.rel_rms_error or 0.0) < 10 * tolerance.COARSE_TOLERANCE:
        epsilon = judge_other_inputs(candidate, oracle, (case,))
        if epsilon is not None and epsilon.severity == "error":
            return epsilon
        narrow = None
    else:
        if right_after_loading(candidate, case, check.name):
            what = f"{wrong}; it is right after load_state_dict(), so it computes with a copy of its parameters"
            remedy = "derive what it keeps in every forward, or anew when a parameter's version changes"
            return diagnose("output_wrong", what, where=where, remedy=remedy)
        narrow = right_for_fewer_parameters(candidate, oracle, case, check.name)
    if narrow is not None:
        what, remedy = f"{wrong}; {narrow}", "compute it for every value of the parameter, in the reference's order"
        return diagnose("output_wrong", what, where=where, remedy=remedy)
    factor = scale_of(sealed, case.outputs[check.name].reference64)
    if factor is not None:
        what, remedy = f"{check.name} is {factor_text(factor)} times the reference's; {wrong}", scale_remedy(factor)
        return diagnose("output_wrong", what, where=where, remedy=remedy)
    pattern = find_output_pattern(oracle, case, check.name, sealed)
    if pattern is not None:
        what = f"{check.name} {pattern.text}; {wrong}"
        code = "output_wrong" if pattern.code == "grad_wrong" else pattern.code
        return diagnose(code, what, where=where, remedy=pattern.remedy)
    remedy = (
        "no pattern was found in the error; compare forward's intermediate results with the reference's, step by step"
    )
    return diagnose("output_wrong", wrong, where=where, remedy=remedy)
