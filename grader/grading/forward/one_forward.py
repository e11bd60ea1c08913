"""Runs one forward of a case on the candidate."""

from __future__ import annotations

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.oracle.case import Case


def one_forward(candidate: Candidate, case: Case, doing: str) -> JobResult:
    """The outputs `output:a:<name>` of one forward of the case. Raises Stopped."""
    job = candidate.script(case)
    job.put_inputs("a", case.inputs)
    job.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, seed=case.call_seed()))
    job.export(exports("output", "a", output_specs(case)))
    job.step(p.Drop())
    return candidate.run(job, "forward", doing)


def outputs_of(candidate: Candidate, case: Case, doing: str) -> dict[str, torch.Tensor | None]:
    """The outputs of one forward of the case, by name. Raises Stopped."""
    sealed = one_forward(candidate, case, doing).sealed
    return {name: sealed.get(f"output:a:{name}") for name in case.outputs}
