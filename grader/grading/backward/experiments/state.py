"""Experiments on what a backward reads and writes: saved state, operands, grad_output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from grader import protocol as p
from grader.executor import JobBuilder, TensorSpec
from grader.grading.backward.experiments._base import ExperimentCases, experiment, first_wrong
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_output
from grader.grading.candidate.placement import parts
from grader.grading.candidate.vjp import (
    Answer,
    Question,
    add_graph_forward,
    add_product,
    attempt_each,
    export_gradients,
)
from grader.grading.compare.blocks import LARGE_BYTES, same_bits
from grader.grading.messages import diagnose, first_line, fresh_tensor, in_backticks
from grader.grading.oracle.case import Case, export_outputs
from grader.grading.oracle.evaluation import MODEL
from grader.verdict.models import Diagnosis

NEW_TENSOR = "write into a new tensor"
SAVE = "keep what backward needs with ctx.save_for_backward, not in a global or on the module"


@experiment(
    "saved_tensor_mutated",
    question="Inputs, parameters and grad_outputs are the same in every bit after forward and backward.",
    remedy=NEW_TENSOR,
    rank=10,
    explains=True,
    lasting=True,
)
def saved_tensor_mutated(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """Both modes in one job, unless they are large; parameters are compared at its end."""
    together = len(cases.modes) * cases.first.nbytes <= LARGE_BYTES
    for modes in [cases.modes] if together else [(mode,) for mode in cases.modes]:
        diagnosis = _mutated(candidate, modes)
        if diagnosis is not None:
            alone = _mutated(candidate, modes[:1]) if len(modes) > 1 else None
            return alone or cases.of_mode(modes[-1], diagnosis)
    return None


def _mutated(candidate: Candidate, modes: Sequence[ExperimentCases]) -> Diagnosis | None:
    """A diagnosis if a forward and backward in one of the modes changes what it is given."""
    case = modes[0].first
    matching = candidate.matching(case)
    values = matching.values(case.state)
    before, grad_outputs, labels = dict[str, torch.Tensor](), dict[str, torch.Tensor](), dict[str, str]()
    for theirs, ours in parts(matching.places).items():
        if not set(ours) & set(case.buffers):
            before[p.state_source(MODEL, theirs)] = values[theirs].view(matching.places[ours[0]].shape)
            labels[p.state_source(MODEL, theirs)] = ours[0]
    job = candidate.script(case)
    for key, mode in zip("ab", modes, strict=False):
        candidate.reset_buffers(job, mode.first)
        add_product(job, candidate, mode.first, key, tape=key)
        for i, value in enumerate(case.inputs):
            if isinstance(value, torch.Tensor):
                before[f"input:{key}:{i}"] = value
                labels[f"input:{key}:{i}"] = case.operand_names.get(f"input[{i}]", f"input[{i}]")
        grad_outputs |= {f"cotangent:{key}:{name}": value for name, value in case.cotangents.items()}
    job.export({source: TensorSpec.like(value) for source, value in {**before, **grad_outputs}.items()})
    result = candidate.attempt(job, "backward", "comparing inputs and parameters after a backward")
    if result.failure is not None:
        return None

    def changed(before: dict[str, torch.Tensor]) -> list[str]:
        after = result.sealed
        return [source for source, value in before.items() if source in after and not same_bits(after[source], value)]

    overwritten = list(dict.fromkeys(source.split(":", 2)[2] for source in changed(grad_outputs)))
    if overwritten:
        what = f"the backward changes the grad_output of {in_backticks(overwritten)} in place"
        return diagnose("grad_output_modified", what, where=case.where, remedy=NEW_TENSOR)
    mutated = [] if case.clone_inputs else list(dict.fromkeys(labels[source] for source in changed(before)))
    if not mutated:
        return None
    what = f"forward or backward changes {in_backticks(mutated)} in place without autograd knowing"
    return diagnose("saved_tensor_mutated", what, remedy=NEW_TENSOR)


@experiment(
    "stale_saved_state",
    question="The backward of the first of several forwards is right, and later forwards leave its output as it was.",
    remedy=SAVE,
    rank=60,
    weight=100,  # drawn nearly always, since nothing else asks for a product of another draw
)
def stale_saved_state(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """Forward A, two forwards B, then the backward of A; and one after the outputs have changed in place.

    With two draws, A is not that of the very first forward.
    """
    questions = [Question(mode.second(), partial(_interleaved, candidate, mode)) for mode in cases.modes]
    answers = attempt_each(candidate, questions, "backward of the first of several forwards")
    for mode, answer in zip(cases.modes, answers, strict=False):
        diagnosis = _stale(candidate, mode, answer)
        if diagnosis is not None:
            return cases.of_mode(mode, diagnosis)
    return _needs_outputs(candidate, cases)


def _needs_outputs(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """A warning if an in-place operation on the outputs makes the gradients wrong, and not the reference's.

    A backward that PyTorch then refuses to run is right: nobody trains with wrong gradients.
    """
    modes = [mode for mode in cases.modes if mode.outputs_may_change(mode.first)]
    questions = [Question(mode.first, partial(_after_change, candidate, mode.first)) for mode in modes]
    answers = attempt_each(candidate, questions, "backward after a change of the outputs")
    for mode, (result, key) in zip(modes, answers, strict=False):
        operand = None if result.failure is not None else first_wrong(candidate, mode.first, result, key=key)
        if operand is not None:
            what = f"after an in-place operation on the outputs, such as ReLU's, the gradient of `{operand}` is wrong"
            remedy = "keep outputs with ctx.save_for_backward, which notices such changes, and not on ctx itself"
            return cases.of_mode(mode, diagnose("stale_saved_state", what, remedy=remedy, severity="warning"))
    return None


def _after_change(candidate: Candidate, case: Case, job: JobBuilder, key: str) -> None:
    job.put_inputs("a", case.inputs, requires_grad=True)
    add_graph_forward(job, case, "a")
    job.step(p.Overwrite(tape="a"))
    cotangents = job.cotangents(case.cotangents)
    job.step(p.Backward(tape="a", grads=key, cotangents=cotangents, wrt=candidate.wrt(case)))
    export_gradients(job, candidate, case, key, case.wrt)


def _interleaved(candidate: Candidate, cases: ExperimentCases, job: JobBuilder, key: str) -> None:
    first, others = cases.second(), cases.others()
    between = replace(first, forward_seed=None)  # a mask of their own
    tapes = [f"{key}.{turn}" for turn in range(3)]
    for tape, case, inputs in zip(tapes, (first, between, between), (first.inputs, others, others), strict=True):
        job.put_inputs(tape, inputs, requires_grad=True)
        add_graph_forward(job, case, tape)
    export_outputs(job, first, tapes[0])
    wrt = candidate.wrt(first)
    job.step(p.Backward(tape=tapes[0], grads=key, cotangents=job.cotangents(first.cotangents), wrt=wrt))
    export_gradients(job, candidate, first, key, first.wrt)


def _stale(candidate: Candidate, cases: ExperimentCases, answer: Answer) -> Diagnosis | None:
    first, (result, key) = cases.second(), answer
    if result.failure is not None:
        what = f"the backward of the first of several forwards raises {first_line(result.failure)}"
        return diagnose("stale_saved_state", what, remedy=SAVE)
    overwritten = [name for name in first.outputs if check_output(first, result, name, f"{key}.0").status == "failed"]
    operand = first_wrong(candidate, first, result, key=key)
    if overwritten and cases.keeps_outputs:
        return diagnose(
            "output_overwritten",
            f"with gradients enabled, the next forwards overwrite the {overwritten[0]} that one returned",
            remedy=fresh_tensor("forward", candidate.captures_graphs),
            stage="backward",
        )
    if operand is None:
        return None
    what = f"after forward A and forward B, the gradient of `{operand}` for A is wrong"
    return diagnose("stale_saved_state", what, remedy=SAVE)
