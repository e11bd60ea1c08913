"""Finds parameters for which a wrong output is right: as constructed, or with those signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from grader.grading.candidate import Candidate, names
from grader.grading.compare.outputs import check_output
from grader.grading.forward.one_forward import is_right, one_forward
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.trained_state import positive
from grader.grading.outcome import MAX_LISTED


def right_for_fewer_parameters(candidate: Candidate, oracle: Oracle, case: Case, output: str) -> str | None:
    """A clause on the parameters for which the output is right, or None. Raises Stopped."""
    if not case.values_comparable:
        return None
    traits, before = oracle.traits(case), oracle.constructed(case)
    before = {name: value.to(case.state[name].device) for name, value in before.items()}
    moved = [name for name in case.state if name in traits.learned and not torch.equal(case.state[name], before[name])]
    signs = positive(case.state, before, frozenset(moved))
    flipped = [name for name in moved if not torch.equal(signs[name], case.state[name])]

    def telling(changed: Sequence[str], values: Mapping[str, torch.Tensor]) -> Sequence[str]:
        """One of these parameters with which alone changed to these values the output is right, or all; else none."""
        every = {name: values[name] for name in changed}
        if not changed or not _right(candidate, oracle, case, {**case.state, **every}, output):
            return ()
        for name in changed[:MAX_LISTED] if len(changed) > 1 else ():
            if _right(candidate, oracle, case, {**case.state, name: values[name]}, output):
                return [name]
        return changed

    if found := telling(flipped, signs):
        return f"it is right unless {names(found)} {'changes its sign' if len(found) == 1 else 'change their signs'}"
    if found := telling(moved, before):
        return f"it is right while {names(found)} {'has' if len(found) == 1 else 'have'} the constructor's values"
    return None


def right_after_loading(candidate: Candidate, case: Case, output: str) -> bool:
    """Whether the output is right once `load_state_dict` has taken the case's parameters. Raises Stopped."""
    result = candidate.attempt(one_forward(candidate, case, loaded=True), "forward", "forward after load_state_dict")
    candidate.forget(everything=True)
    return result.failure is None and check_output(case, result, output).status == "passed"


def _right(candidate: Candidate, oracle: Oracle, case: Case, state: Mapping[str, torch.Tensor], output: str) -> bool:
    """Whether the candidate's output is the reference's for these parameters."""
    other = replace(case, state=state)
    other = replace(other, outputs=questions.outputs_for(oracle, other, case.inputs))
    return is_right(candidate, other, output, "forward with other parameters")
