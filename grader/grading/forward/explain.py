"""Explains a wrong output: NaN, a missing parameter, a known mistake, or wrong values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch

from grader.grading.candidate.candidate import Candidate
from grader.grading.compare import tolerance
from grader.grading.compare.expected import COARSE_TOLERANCE, Expected
from grader.grading.compare.scaling import factor_text, scale_of, scale_remedy
from grader.grading.forward.another_output import in_another_output
from grader.grading.forward.dependence import dependence
from grader.grading.forward.one_forward import is_right, outputs_of
from grader.grading.forward.other_inputs import ERROR, judge_other_inputs
from grader.grading.forward.single_number import constant_factor
from grader.grading.forward.unpaired import with_own_parameters, without_counterpart
from grader.grading.messages import MAX_LISTED, diagnose, in_backticks, usual_remedy
from grader.grading.oracle import known_mistakes, variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.trained_state import positive
from grader.grading.patterns.named_factor import Factors, factor_of, named_factors
from grader.grading.patterns.pattern import Pattern, nothing_found, within_time
from grader.grading.patterns.rounded import confirmed_roundings
from grader.grading.patterns.search import find_output_pattern
from grader.verdict.models import Diagnosis
from grader.verdict.stages import TensorCheck

GELU_FORMS: tuple[tuple[Literal["gelu_tanh", "gelu_erf"], str, str, str], ...] = (
    ("gelu_tanh", "gelu_tanh_for_erf", "by its tanh approximation", "the exact erf form"),
    ("gelu_erf", "gelu_erf_for_tanh", "in its exact erf form", "the tanh approximation"),
)
"""A substitute in the reference, the code for an output that matches it, what that output is, and the reference's."""


@dataclass(frozen=True)
class Mismatch:
    """A wrong output of a case, and what was measured of it."""

    candidate: Candidate
    oracle: Oracle
    case: Case
    check: TensorCheck
    sealed: torch.Tensor
    beside: str
    """A clause on the other outputs: which are wrong, and which are right; empty without any."""

    @property
    def name(self) -> str:
        return self.check.name

    @property
    def wrong(self) -> str:
        """The check's message: what is wrong, where and by how much."""
        return (self.check.message or f"{self.name} is wrong") + self.beside

    @property
    def expected(self) -> Expected:
        return self.case.outputs[self.name]


def explain(
    candidate: Candidate, oracle: Oracle, case: Case, check: TensorCheck, sealed: torch.Tensor, beside: str = ""
) -> Diagnosis:
    """The diagnosis for a wrong output, which names the mistake if it is a known one. Raises Stopped.

    Other inputs than the problem's may end the process (`_wrong_epsilon`): then nothing more is asked.
    """
    output, found = Mismatch(candidate, oracle, case, check, sealed, beside), None
    for explanation in EXPLANATIONS:
        if candidate.worker.ended:
            remedy = "its process ended on other inputs; compare forward's intermediate results, step by step"
            return diagnose("output_wrong", output.wrong, where=case.where, remedy=remedy)
        if (found := explanation(output)) is not None:
            break
    return with_own_parameters(candidate, case, found or _unexplained(output))


def _not_a_number(output: Mismatch) -> Diagnosis | None:
    if not output.wrong.endswith(tolerance.NOT_FINITE_ALIKE):
        return None
    return diagnose("output_nan", output.wrong, where=output.case.where, remedy=usual_remedy("output_nan"))


def _parameters(output: Mismatch) -> Diagnosis | None:
    return without_counterpart(output.candidate, output.case, output.wrong)


def _rounded_output(output: Mismatch) -> Diagnosis | None:
    narrow = known_mistakes.rounded_to(output.sealed, output.expected)
    if narrow is None:
        return None
    what = f"{output.name} was rounded to {narrow}; {output.wrong}"
    return diagnose("low_precision", what, where=output.case.where, remedy="compute and store it in float32")


def _unrounded_output(output: Mismatch) -> Diagnosis | None:
    narrow = known_mistakes.left_unrounded(output.sealed, output.expected)
    if narrow is None:
        return None
    what = f"{output.name} is not rounded to {narrow}, as the reference's is; {output.wrong}"
    remedy = f"convert to {narrow} where the reference does"
    return diagnose("output_wrong", what, where=output.case.where, remedy=remedy)


def _another_output(output: Mismatch) -> Diagnosis | None:
    found = in_another_output(output.case, output.name, output.sealed)
    if found is None:
        return None
    what, remedy = found
    return diagnose("output_wrong", f"{output.name} {what}; {output.wrong}", where=output.case.where, remedy=remedy)


def _other_gelu(output: Mismatch) -> Diagnosis | None:
    for substitute, code, form, due in GELU_FORMS:
        lookalike = known_mistakes.outputs(output.oracle, output.case, substitute).get(output.name)
        alike = None if lookalike is None else tolerance.check(lookalike, output.sealed)
        # Where the tolerance exceeds the gap between the two forms, both match.
        nearer = alike and 2 * (alike.rel_rms_error or 0.0) < (output.check.rel_rms_error or math.inf)
        if alike and alike.status == "passed" and nearer:
            what = f"{output.name} matches GELU {form}, the reference uses {due}; {output.wrong}"
            remedy = f"use {due}; the largest gap between the two is 4.7e-4"
            return diagnose(code, what, where=output.case.where, remedy=remedy)
    return None


def _rounded_inside(output: Mismatch) -> Diagnosis | None:
    sealed, again = {output.name: output.sealed}, partial(outputs_of, output.candidate)
    found = confirmed_roundings(output.oracle, output.case, "outputs", sealed, again)
    return next((_of_pattern(output, pattern) for pattern in found.values()), None)


def _wrong_epsilon(output: Mismatch) -> Diagnosis | None:
    """An error of other inputs, whose variance is small, where this one is small too.

    An epsilon's share grows at least as inputs shrink, by a thousand, until it is all there is.
    """
    if not _is_small(output):
        return None
    found = judge_other_inputs(output.candidate, output.oracle, (output.case,))
    if found is None or found.severity != "error":
        return None
    grown, error = min(0.1, 1e3 * (output.check.rel_rms_error or 0.0)), found.detail[ERROR]
    return None if isinstance(error, float) and error < grown else found


def _other_dependence(output: Mismatch) -> Diagnosis | None:
    found = None if _is_small(output) else dependence(output.candidate, output.oracle, output.case, output.name)
    if found is None:
        return None
    clause, remedy = found
    return diagnose("output_wrong", f"{output.wrong}; {clause}", where=output.case.where, remedy=remedy)


def _some_values_of_a_parameter(output: Mismatch) -> Diagnosis | None:
    if _is_small(output):
        return None
    narrow = right_for_fewer_parameters(output.candidate, output.oracle, output.case, output.name)
    if narrow is None:
        return None
    remedy = "compute it for every value of the parameter, in the reference's order"
    return diagnose("output_wrong", f"{output.wrong}; {narrow}", where=output.case.where, remedy=remedy)


def _is_small(output: Mismatch) -> bool:
    return (output.check.rel_rms_error or 0.0) < 10 * COARSE_TOLERANCE


def _named_factor(output: Mismatch) -> Diagnosis | None:
    candidate, oracle, case, name = output.candidate, output.oracle, output.case, output.name

    def again(other: Case) -> Factors:
        due = variations.outputs_of(oracle, other)[name].reference64
        return {name: factor_of(outputs_of(candidate, other)[name], due)}

    factor = factor_of(output.sealed, output.expected.reference64)
    pattern = named_factors(oracle, case, {name: factor}, again).get(name)
    if factor is None or pattern is None:
        return None
    what = f"{name} is {factor_text(factor)} times the reference's, {pattern}; {output.wrong}"
    return diagnose("output_wrong", what, where=case.where, remedy=pattern.remedy)


def _scaled(output: Mismatch) -> Diagnosis | None:
    factor = scale_of(output.sealed, output.expected.reference64)
    if factor is None:
        return None
    what = f"{output.name} is {factor_text(factor)} times the reference's; {output.wrong}"
    return diagnose("output_wrong", what, where=output.case.where, remedy=scale_remedy(factor))


def _factor_of_a_number(output: Mismatch) -> Diagnosis | None:
    pattern = constant_factor(output.candidate, output.oracle, output.case, output.name, output.sealed)
    return None if pattern is None else _of_pattern(output, pattern)


def _pattern(output: Mismatch) -> Diagnosis | None:
    again = partial(outputs_of, output.candidate)
    pattern = find_output_pattern(output.oracle, output.case, output.name, output.sealed, again)
    return None if pattern is None else _of_pattern(output, pattern)


def _of_pattern(output: Mismatch, pattern: Pattern) -> Diagnosis:
    code = "output_wrong" if pattern.code == "grad_wrong" else pattern.code
    what = f"{output.name} {pattern}; {output.wrong}"
    return diagnose(code, what, where=output.case.where, remedy=pattern.remedy)


def _unexplained(output: Mismatch) -> Diagnosis:
    remedy = (
        f"{nothing_found(output.sealed)}; compare forward's intermediate results with the reference's, step by step"
    )
    remedy = within_time(remedy, output.oracle.budget)
    return diagnose("output_wrong", output.wrong, where=output.case.where, remedy=remedy)


EXPLANATIONS: tuple[Callable[[Mismatch], Diagnosis | None], ...] = (
    _not_a_number,
    _parameters,
    _rounded_output,
    _unrounded_output,
    _another_output,
    _other_gelu,
    _rounded_inside,
    _wrong_epsilon,
    _named_factor,
    _other_dependence,
    _some_values_of_a_parameter,
    _scaled,
    _factor_of_a_number,
    _pattern,
)
"""In the order in which they are tried: what is certain first, then what explains most."""


def right_for_fewer_parameters(candidate: Candidate, oracle: Oracle, case: Case, output: str) -> str | None:
    """A clause on the parameters for which the output is right, or None. Raises Stopped."""
    if not case.values_comparable:
        return None
    traits, before = oracle.traits(case), oracle.models.constructed(case)
    before = {name: value.to(case.state[name].device) for name, value in before.items()}
    moved = [name for name in case.state if name in traits.learned and not torch.equal(case.state[name], before[name])]
    signs = positive(case.state, before, frozenset(moved))
    flipped = [name for name in moved if not torch.equal(signs[name], case.state[name])]

    def telling(changed: Sequence[str], values: Mapping[str, torch.Tensor]) -> Sequence[str]:
        """The single parameter whose change to its given value makes the output right.

        Else all, if together they do; else none."""
        every = {name: values[name] for name in changed}
        if not changed or not _right(candidate, oracle, case, {**case.state, **every}, output):
            return ()
        for name in changed[:MAX_LISTED] if len(changed) > 1 else ():
            if _right(candidate, oracle, case, {**case.state, name: values[name]}, output):
                return [name]
        return changed

    if found := telling(flipped, signs):
        change = "changes its sign" if len(found) == 1 else "change their signs"
        return f"it is right unless {in_backticks(found)} {change}"
    if found := telling(moved, before):
        have = "has" if len(found) == 1 else "have"
        return f"it is right while {in_backticks(found)} {have} the constructor's values"
    return None


def _right(candidate: Candidate, oracle: Oracle, case: Case, state: Mapping[str, torch.Tensor], output: str) -> bool:
    """Whether the candidate's output is the reference's for these parameters."""
    other = replace(case, state=state)
    other = replace(other, outputs=variations.outputs_of(oracle, other))
    return is_right(candidate, other, output, "forward with other parameters")
