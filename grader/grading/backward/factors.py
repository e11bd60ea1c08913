"""Factors by which gradients are off: named by a scalar, or confirmed by another grad_output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from grader.grading.backward.classify import GradientFault, wrong_fault
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import Product, gradients_of
from grader.grading.compare import tolerance
from grader.grading.compare.expected import Expected
from grader.grading.compare.narrow_types import is_narrow, spacing
from grader.grading.compare.scaling import REDUCED_PRECISION, UNKNOWN_CONSTANT, factor_text, scale_remedy
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import OTHER_DRAWS, draw_cotangents
from grader.grading.patterns.named_factor import Factors, factor_of, named_factors
from grader.grading.patterns.number_factor import Measured, agreed_factor, shown_factor


def with_factors(
    candidate: Candidate, oracle: Oracle, case: Case, faults: Sequence[GradientFault], actual: Product
) -> list[GradientFault]:
    """The faults with the factors of those that are multiples of the right gradient. Raises Stopped."""
    named = _with_named_factors(candidate, oracle, case, faults, actual)
    confirmed = _without_shares(candidate, oracle, case, named, actual)
    return [_with_factor_of_a_number(candidate, oracle, case, fault, actual) for fault in confirmed]


def _with_named_factors(
    candidate: Candidate, oracle: Oracle, case: Case, faults: Sequence[GradientFault], actual: Product
) -> list[GradientFault]:
    """The faults; those of gradients that are off by a function of a scalar name it. Raises Stopped."""
    scaled = [fault.name for fault in faults if fault.code == "grad_scaled" or not fault.explained]

    def measured(ours: Mapping[str, torch.Tensor | None], due: Mapping[str, Expected | None]) -> Factors:
        right = {name: due.get(name) or case.gradients[name] for name in scaled}
        return {name: factor_of(ours.get(name), expected.reference64) for name, expected in right.items() if expected}

    def again(other: Case) -> Factors:
        return measured(gradients_of(candidate, other), known_mistakes.gradients(oracle, other, "none"))

    factors = measured(actual.gradients, case.gradients)
    named = named_factors(oracle, case, factors, again)
    return [
        replace(
            fault,
            code="grad_scaled",
            text=f"{factor_text(factor)} times the reference's, {pattern}",
            remedy=pattern.remedy,
            amount=None,
            factor=factor,
        )
        if (pattern := named.get(fault.name)) is not None and (factor := factors.get(fault.name)) is not None
        else fault
        for fault in faults
    ]


def _without_shares(
    candidate: Candidate, oracle: Oracle, case: Case, faults: Sequence[GradientFault], actual: Product
) -> list[GradientFault]:
    """The faults; those of gradients whose factor is another for another grad_output are `grad_wrong`. Raises Stopped.

    Such a factor is the share of one sample in a sum over samples. Whole numbers and their inverses are no such share.
    """
    odd = {fault.name for fault in faults if _is_odd(fault)}
    if not odd or not case.values_comparable or oracle.is_slow(case):
        return list(faults)
    other = replace(case, cotangents=draw_cotangents(case.cotangents, candidate.device))
    due = known_mistakes.gradients(oracle, other, "none")
    ours = gradients_of(candidate, other) if due else {}

    def judged(fault: GradientFault) -> GradientFault:
        value, right = ours.get(fault.name), due.get(fault.name)
        if fault.name not in odd or value is None or right is None or fault.factor is None:
            return fault
        factor, allowed = factor_of(value, right.reference64), REDUCED_PRECISION + spacing(right.dtype)
        if factor is not None and abs(factor - fault.factor) <= allowed * abs(fault.factor):
            return fault
        gradient, expected = actual.gradients[fault.name], case.gradients[fault.name]
        if gradient is None or expected is None:
            return fault
        return wrong_fault(fault.name, fault.operand, tolerance.check(expected, gradient), gradient, expected)

    return [judged(fault) for fault in faults]


def _is_odd(fault: GradientFault) -> bool:
    """Whether a gradient is a multiple by a number that nothing explains."""
    return fault.code == "grad_scaled" and fault.remedy == UNKNOWN_CONSTANT


def _with_factor_of_a_number(
    candidate: Candidate, oracle: Oracle, case: Case, fault: GradientFault, actual: Product
) -> GradientFault:
    """The fault; that of a gradient of one element has its factor if other draws have the same. Raises Stopped.

    Each of them has a grad_output of its own: a sum over one sample alone may be the same share of the whole for one.
    In 16 bits they have the first one's, as the errors of rounding are known for it alone.
    """
    expected = case.gradients[fault.name]
    if fault.explained or expected is None or expected.reference64.numel() != 1 or oracle.is_slow(case):
        return fault

    def draws() -> Iterator[Measured]:
        yield actual.gradients[fault.name], expected
        for draw in range(1, 1 + OTHER_DRAWS):
            other = oracle.case(case.variant, training=case.training, draw=draw)
            due = other.gradients[fault.name]
            if not is_narrow(expected.dtype):
                other = replace(other, cotangents=draw_cotangents(other.cotangents, candidate.device))
                due = known_mistakes.gradients(oracle, other, "none").get(fault.name)
            if due is not None:
                yield gradients_of(candidate, other).get(fault.name), due

    factor = agreed_factor(draws())
    if factor is None:
        return fault
    text = f"{shown_factor(factor, expected)} times the reference's in {1 + OTHER_DRAWS} draws"
    return replace(fault, code="grad_scaled", text=text, remedy=scale_remedy(factor), amount=None, factor=factor)
