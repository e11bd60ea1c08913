"""The outputs of a submission in train() and in eval(), on the same inputs and state."""

from __future__ import annotations

import torch

from grader import protocol as p
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.parts import forward_step
from grader.grading.oracle.case import Case, export_outputs


def ignores_mode(candidate: Candidate, case: Case) -> bool:
    """Whether the candidate's outputs for a case are the same in the other mode. Raises Stopped."""
    job = candidate.script(case)
    job.put_inputs("a", case.inputs)
    for tape, training in (("a", case.training), ("b", not case.training)):
        candidate.reset_buffers(job, case)
        job.step(forward_step(case, tape=tape, training=training, clone_inputs=True))
        export_outputs(job, case, tape)
    job.step(p.Drop())
    sealed = candidate.run(job, "forward", "forward in train() and in eval()").sealed
    return all(
        (one := sealed.get(p.output_source("a", name))) is not None
        and (other := sealed.get(p.output_source("b", name))) is not None
        and torch.allclose(one, other, equal_nan=True)
        for name in case.outputs
    )
