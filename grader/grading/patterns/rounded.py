"""Recognises outputs whose errors are those of operands that were rounded to a narrower type.

In a long sum of positive products, such errors cancel below any bound on the norm, as those of 4096 numbers do. Their
signs and sizes still follow those of the reference with operands rounded in the same way, which float32's do not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch

from grader.errors import ProblemError, ReferenceLost, ReferenceOutOfMemory
from grader.grading.compare import known_mistakes, tolerance
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.patterns.evaluated import FORMATS, significant_bits
from grader.grading.patterns.pattern import MAX_ELEMENTS, norm, number
from grader.verdict.models import Diagnosis


def judge_rounding(oracle: Oracle, case: Case, name: str, actual: torch.Tensor, *, also: str = "") -> Diagnosis | None:
    """`low_precision` if an output's errors are those of rounded inputs and parameters, else None."""
    text = _follows_operands(oracle, case, name, actual)
    if text is None:
        return None
    remedy = "keep operands of products in float32, and TensorFloat-32 off"
    if "TensorFloat-32" in text:
        remedy += ", or grade with --precision tf32"
    return diagnose("low_precision", f"{name} {text}{also}", where=f"variant {case.name}", remedy=remedy)


def _follows_operands(oracle: Oracle, case: Case, name: str, actual: torch.Tensor) -> str | None:
    expected = case.outputs[name]
    if not case.comparable("outputs", name) or not 0 < actual.numel() <= MAX_ELEMENTS:
        return None
    if expected.dtype is not torch.float32 or not oracle.traits(case).has_float64:
        return None
    right = expected.reference64.cpu().double()
    error = actual.cpu().double() - right
    size = norm(error)
    if not math.isfinite(size) or size <= tolerance.BASELINE_FACTOR_L2 * expected.error_l2:
        return None
    for kind, dtype in FORMATS.items():
        bits = significant_bits(dtype)
        key = "rounded operands", case.seed, case.training, bits
        narrow = oracle.remember(key, partial(_rounded_outputs, oracle, case, bits)).get(name)
        if narrow is None:
            continue
        gap = narrow.cpu().double() - right
        alike = float((error * gap).sum()) / max(size * norm(gap), 1e-300)
        if _follows(expected, error, gap, alike):
            relative = size / max(norm(right), 1e-300)
            return (
                f"has errors of the size of {kind} rounding of the operands (relative {number(relative)}), and follows "
                f"those of the reference with rounded operands (correlation {alike:.2f})"
            )
    return None


def _follows(expected: tolerance.Expected, error: torch.Tensor, gap: torch.Tensor, alike: float) -> bool:
    """Whether the error is the gap, wholly or in part; of few elements, only a gap that no order of sums explains."""
    size, count = norm(gap), gap.numel()
    if not size or not 1 / tolerance.BASELINE_FACTOR_L2 < norm(error) / size < tolerance.BASELINE_FACTOR_L2:
        return False
    if float(error.abs().median()) < 0.1 * norm(error) / math.sqrt(count):
        return False  # of few elements, as at a non-smooth point that both cross
    if alike > max(0.5, 4 / math.sqrt(count)):
        return True
    units = tolerance.BASELINE_FACTOR_MAX + math.sqrt(expected.reduction_length) / 4
    return norm(error - gap) < 0.3 * size and size > units * tolerance.EPSILON * expected.norm


def _rounded_outputs(oracle: Oracle, case: Case, bits: int) -> dict[str, torch.Tensor]:
    """The float64 outputs for inputs and parameters with so many significant bits; none if the reference fails."""
    try:
        found = known_mistakes.with_rounded_operands(oracle, replace(case, cotangents={}, gradients={}), bits)
    except (ReferenceLost, ReferenceOutOfMemory):
        raise
    except ProblemError:
        return {}
    return dict(found)
