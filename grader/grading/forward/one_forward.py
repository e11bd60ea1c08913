"""Runs forwards of cases on the candidate: one alone, or several in a row as timed calls do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import torch

from grader import protocol as p
from grader.executor import JobBuilder
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_output
from grader.grading.candidate.parts import export_buffers, forward_step
from grader.grading.oracle.case import Case, export_outputs
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.other_parameters import changed_names
from grader.machine.backends import backend


def one_forward(
    candidate: Candidate,
    case: Case,
    *,
    earlier: Sequence[Sequence[object]] = (),
    layout: Literal["contiguous", "strided"] = "contiguous",
) -> JobBuilder:
    """A job of one forward that brings back its outputs, under the tape "a", and the buffers after it.

    Forwards on the `earlier` inputs come before it. Raises Stopped.
    """
    job = candidate.script(case)
    for inputs in earlier:
        job.put_inputs("earlier", inputs)
        job.step(p.Forward(model=MODEL, inputs="earlier", tape="earlier", training=case.training))
    job.put_inputs("a", case.inputs, layout=layout)
    job.step(forward_step(case, clone_inputs=False))
    export_outputs(job, case, "a")
    export_buffers(job, candidate, case)
    job.step(p.Drop())
    return job


def add_forward(
    job: JobBuilder,
    candidate: Candidate,
    case: Case,
    tape: str,
    *,
    before: Case,
    updated: Collection[str] | None = None,
    key: str = "a",
    training: bool | None = None,
    reuse_addresses: bool = False,
) -> None:
    """Add a forward without a graph, by the step of a timed call, whose outputs come back under this tape.

    A submission that recognises timed calls gets the same questions in them. Only parameters and buffers that differ
    from those of the case `before` in the job, and buffers that forwards update (`updated`, or all), are put in place,
    since a version counter moves with each copy into its tensor.
    """
    candidate.reset(job, case, only={*changed_names(before, case), *(case.buffers if updated is None else updated)})
    job.put_inputs(key, case.inputs, reuse_addresses=reuse_addresses)
    step = p.Queue if backend(candidate.device).timeline else p.Time
    job.step(
        step(
            part="inference",
            model=MODEL,
            inputs=key,
            tape=tape,
            grads=tape,
            training=case.training if training is None else training,
            tf32=False,
            seed=case.call_seed(),
        )
    )
    export_outputs(job, case, tape)


def outputs_of(candidate: Candidate, case: Case) -> dict[str, torch.Tensor | None]:
    """The outputs of one forward of another draw, by name. Raises Stopped."""
    sealed = candidate.run(one_forward(candidate, case), "forward", "forward of another draw").sealed
    return {name: sealed.get(p.output_source("a", name)) for name in case.outputs}


def is_right(candidate: Candidate, case: Case, output: str, doing: str) -> bool:
    """Whether the output is right in one forward. Raises Stopped."""
    result = candidate.run(one_forward(candidate, case), "forward", doing)
    return check_output(case, result, output).status == "passed"
