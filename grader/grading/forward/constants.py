"""Compares what constructors compute: positions, slopes, windows, masks.

A buffer that every seed makes alike is no state: ModelNew keeps its own, in whatever layout or dtype, and outputs show
whether it is right. If they are wrong, the reference's values are put in place for another try.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from grader import protocol as p
from grader.executor import TensorSpec
from grader.grading.candidate.candidate import Candidate
from grader.grading.compare.blocks import is_large, unravel
from grader.grading.compare.expected import EPSILON
from grader.grading.compare.scaling import REDUCED_PRECISION, ROUNDING_RESIDUAL, least_squares
from grader.grading.messages import diagnose
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import as_real
from grader.grading.status import Judged
from grader.verdict.models import Diagnosis
from grader.verdict.stages import ForwardResult, StageStatus

_Judged = TypeVar("_Judged", bound=Judged[ForwardResult])


def constants(oracle: Oracle, cases: Sequence[Case]) -> frozenset[str]:
    """The reference's buffers and frozen parameters that its constructor computes, and no forward updates."""
    updated = frozenset[str]().union(*(case.updated_buffers for case in cases))
    return oracle.traits(cases[0]).tables - updated


def with_constants(
    candidate: Candidate, cases: Sequence[Case], judged: _Judged, judge: Callable[[], _Judged]
) -> _Judged:
    """The forward judged again with the reference's constants, if only ModelNew's own made it wrong.

    Where one of these is wrong by more than the rounding of another formula, that is the fault. Raises Stopped.
    """
    failed = next((case for case in cases if case.name == judged.result.variants[-1].variant), cases[0])
    constructed = _constructed(candidate, failed)
    own, candidate.own = candidate.own, frozenset()
    again = judge()
    right = again.result.status is StageStatus.PASSED
    wrong = _wrong_constant(failed, constructed) if right else None
    if right and wrong is None:
        return again
    candidate.own = own
    return judged if wrong is None else replace(judged, diagnoses=(wrong,))


def _constructed(candidate: Candidate, case: Case) -> dict[str, torch.Tensor]:
    """The constants of ModelNew's own, which nothing was put in place of, by the reference's names; no large ones."""
    matched = candidate.matching(case).places
    places = {name: matched[name] for name in candidate.own & matched.keys() if not is_large(case.state[name])}
    job = candidate.script(case)
    sources = {name: p.state_source(MODEL, place.name) for name, place in places.items()}
    job.export({sources[name]: TensorSpec(place.shape, case.state[name].dtype) for name, place in places.items()})
    sealed = candidate.attempt(job, "forward", "reading buffers as constructed").sealed
    found = {name: sealed.get(source) for name, source in sources.items()}
    return {name: places[name].take(value) for name, value in found.items() if value is not None}


def _wrong_constant(case: Case, constructed: Mapping[str, torch.Tensor]) -> Diagnosis | None:
    """A diagnosis if the constructor of ModelNew gives a constant other values than the reference's."""
    for name, own in constructed.items():
        difference = _difference(own, case.state[name])
        if difference:
            return diagnose(
                "buffer_constructed_wrong",
                f"the outputs are right with `{name}` as Model's constructor computes it, and wrong as ModelNew's does",
                where=case.where,
                amount=difference,
                remedy="compute it in __init__ as Model does",
            )
    return None


def _difference(own: torch.Tensor, right: torch.Tensor) -> str:
    """By how much a constant is wrong; empty if it is right up to the rounding of another formula.

    That of an angle in float32 grows with the position, to 1% at position 100,000. So an element is wrong that is
    off by more than that, or by much more than most. A constant that is rounded to a narrower type, or scaled, is wrong
    as a whole.
    """
    own, right = own.cpu(), right.cpu()
    if not (right.is_floating_point() or right.is_complex()):
        return _elements(own, right, own != right)
    for dtype in (torch.bfloat16, torch.float16):
        narrows = right.is_floating_point() and right.dtype.itemsize > dtype.itemsize
        if narrows and not torch.equal(own, right) and torch.equal(own, right.to(dtype).to(right.dtype)):
            return f"its values are rounded to {str(dtype).removeprefix('torch.')}"
    own, right = (as_real(value).double() for value in (own, right))
    finite = right.isfinite()
    apart, sizes = (own - right)[finite].abs(), right[finite].abs()
    rms = math.sqrt(float(sizes.square().mean())) if len(sizes) else 0.0
    usual = float(apart.median()) if len(apart) else 0.0
    least = max(rms * EPSILON, min(32 * usual, 10 * REDUCED_PRECISION * rms))
    near = (own - right).abs() <= (10 * EPSILON * right.abs()).clamp(min=least)
    off = ~torch.where(finite, near, (own == right) | (own.isnan() & right.isnan()))
    if bool(off.any()):
        return _elements(own, right, off)
    factor = least_squares(own[finite], right[finite])
    return f"its values are {factor:.6g} times Model's" if abs(factor - 1) > ROUNDING_RESIDUAL else ""


def _elements(own: torch.Tensor, right: torch.Tensor, off: torch.Tensor) -> str:
    """The number of elements that are off, and the first of them; empty if there is none."""
    if not bool(off.any()):
        return ""
    first = int(off.reshape(-1).nonzero()[0])
    place = list(unravel(first, off.shape))
    theirs, ours = own.reshape(-1)[first].item(), right.reshape(-1)[first].item()
    return f"{int(off.sum())} of {off.numel()} elements, {theirs:.4g} for {ours:.4g} at {place}"
