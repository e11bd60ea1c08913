"""Finds parameters for which a wrong output is right: as constructed, or with those signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from grader import protocol as p
from grader.grading.candidate import MODEL, Candidate, exports, names, output_specs
from grader.grading.compare.outputs import check_output
from grader.grading.forward.one_forward import one_forward
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
    right = is_right(candidate, case, output, "forward after load_state_dict", loaded=True)
    candidate.forget(everything=True)
    return right


def is_right(candidate: Candidate, case: Case, output: str, doing: str, *, loaded: bool = False) -> bool:
    """Whether the output is right in one forward; after `load_state_dict` it may fail. Raises Stopped."""
    job = candidate.script(case)
    if loaded:
        job.load_state(MODEL, case.state)
    job.put_inputs("a", case.inputs)
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, seed=case.call_seed()))
    job.export(exports("output", "a", output_specs(case)))
    job.step(p.Drop())
    result = (candidate.attempt if loaded else candidate.run)(job, "forward", doing)
    return result.failure is None and check_output(case, result, f"output:a:{output}", output).status == "passed"


def _right(candidate: Candidate, oracle: Oracle, case: Case, state: Mapping[str, torch.Tensor], output: str) -> bool:
    """Whether the candidate's output is the reference's for these parameters."""
    other = replace(case, state=state)
    other = replace(other, outputs=questions.outputs_for(oracle, other, case.inputs))
<<<<<<< HEAD
    result = one_forward(candidate, other, "forward with other parameters")
    return check_output(other, result, f"output:a:{output}", output).status == "passed"
=======
    return is_right(candidate, other, output, "forward with other parameters")
>>>>>>> house
