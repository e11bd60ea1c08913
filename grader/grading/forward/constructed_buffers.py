"""Compares the buffers that constructors compute: positions, slopes, windows, masks.

Every check puts the reference's buffers into a submission, as a checkpoint would; so none sees a constant that its own
constructor computes wrongly, and that everybody who constructs it gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from grader.errors import ProblemError
from grader.grading import chance
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_output
from grader.grading.compare.scaling import REDUCED_PRECISION
from grader.grading.forward.one_forward import one_forward
from grader.grading.forward.probes import probe
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle, remembered
from grader.grading.oracle.values import as_real
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis


@probe("buffer_constructed_wrong", rank=5)
def constructs_the_same_buffers(candidate: Candidate, oracle: Oracle, case: Case) -> Diagnosis | None:
    """Buffers that are alike under all seeds in the reference have these values in ModelNew.

    Such a constant may have others if the outputs are right with them.
    """
    own = candidate.constructed_buffers(case)
    constants = _constants(oracle, case) if own and case.values_comparable else {}
    off = {name: _off(own[name], right) for name, right in constants.items() if name in own}
    wrong = [name for name, elements in off.items() if bool(elements.any())]
    if not wrong or _right_with(candidate, oracle, case, {name: own[name] for name in wrong}):
        return None
    name = wrong[0]
    first = int(off[name].reshape(-1).nonzero()[0])
    place = [int(index) for index in torch.unravel_index(torch.tensor(first), off[name].shape)]
    theirs, ours = own[name].reshape(-1)[first].item(), constants[name].reshape(-1)[first].item()
    return diagnose(
        "buffer_constructed_wrong",
        f"ModelNew's constructor gives buffer `{name}` other values than Model's",
        where=case.place,
        amount=f"{int(off[name].sum())} of {off[name].numel()} elements, {theirs:.4g} for {ours:.4g} at {place}",
        remedy="compute it in __init__ as Model does",
    )


@remembered
def _constants(oracle: Oracle, case: Case) -> dict[str, torch.Tensor]:
    """The reference's buffers that its constructor computes alike under two seeds."""
    once = oracle.constructed(case)
    again = oracle.constructed_under(case, chance.new_seed(), on_device=True)
    learned = oracle.traits(case).learned
    return {name: of for name, of in again.items() if name not in learned and torch.equal(once[name], of)}


def _off(own: torch.Tensor, right: torch.Tensor, least: float = 10 * REDUCED_PRECISION) -> torch.Tensor:
    """The elements that differ by more than float32 formulas for one angle do, at position 100,000."""
    own, right = (as_real(value).cpu().double() for value in (own, right))
    finite = right.isfinite()
    usual = float(right[finite].square().mean().sqrt()) if bool(finite.any()) else 0.0
    near = (own - right).abs() <= least * right.abs().clamp(min=usual)
    return ~torch.where(finite, near, (own == right) | (own.isnan() & right.isnan()))


def _right_with(candidate: Candidate, oracle: Oracle, case: Case, own: Mapping[str, torch.Tensor]) -> bool:
    """Whether the outputs with these buffers as ModelNew constructs them are those with the reference's."""
    constructed = oracle.constructed(case)
    other = replace(case, state={**case.state, **{name: constructed[name] for name in own}})
    try:
        other = replace(other, outputs=variations.outputs_for(oracle, other, case.inputs))
    except ProblemError:  # as constructed, they are outside what a trained state allows
        return True
    kept = replace(other, state={**other.state, **own})
    result = candidate.attempt(one_forward(candidate, kept), "forward", "forward with buffers as constructed")
    if result.failure is not None:
        return False
    return all(check_output(kept, result, name).status != "failed" for name in case.outputs)
