"""Runs one forward of a case on the candidate."""

from __future__ import annotations

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.compare.outputs import check_output
from grader.grading.oracle.case import Case


def one_forward(candidate: Candidate, case: Case, doing: str, *, loaded: bool = False) -> JobResult:
    """The outputs `output:a:<name>` of one forward of the case. Raises Stopped.

    With `loaded` it may fail, and the parameters come by `load_state_dict`.
    """
    job = candidate.script(case)
    if loaded:
        job.load_state(MODEL, case.state)
    job.put_inputs("a", case.inputs)
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, seed=case.call_seed()))
    job.export(exports("output", "a", output_specs(case)))
    job.step(p.Drop())
    return (candidate.attempt if loaded else candidate.run)(job, "forward", doing)


def outputs_of(candidate: Candidate, case: Case, doing: str) -> dict[str, torch.Tensor | None]:
    """The outputs of one forward of the case, by name. Raises Stopped."""
    sealed = one_forward(candidate, case, doing).sealed
    return {name: sealed.get(f"output:a:{name}") for name in case.outputs}


def is_right(candidate: Candidate, case: Case, output: str, doing: str, *, loaded: bool = False) -> bool:
    """Whether the output is right in one forward; `loaded` as for `one_forward`. Raises Stopped."""
    result = one_forward(candidate, case, doing, loaded=loaded)
    return result.failure is None and check_output(case, result, f"output:a:{output}", output).status == "passed"
