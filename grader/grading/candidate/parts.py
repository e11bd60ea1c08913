"""The parts that many jobs of a candidate share: a plain forward, and what comes back."""

from __future__ import annotations

from typing import Any

from grader import protocol as p
from grader.executor import JobBuilder, TensorSpec
from grader.grading.candidate.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL


def forward_step(case: Case, inputs: str = "a", *, tape: str | None = None, **how: Any) -> p.Forward:
    """A forward of the active model on the inputs under a key.

    Its outputs stay under `tape`, by default that key. `how` has other fields than those of a plain call.
    """
    usual = {"training": case.training, "seed": case.call_seed(), "clone_inputs": case.clone_inputs}
    return p.Forward(model=MODEL, inputs=inputs, tape=tape or inputs, **(usual | how))


def export_buffers(job: JobBuilder, candidate: Candidate, case: Case) -> None:
    """Bring back the buffers as they are after the steps so far, by the candidate's names."""
    specs = {
        p.state_source(MODEL, theirs): TensorSpec(candidate.shape(case, ours), case.buffers[ours].dtype)
        for ours, theirs in candidate.buffers(case).items()
    }
    job.export(specs)
