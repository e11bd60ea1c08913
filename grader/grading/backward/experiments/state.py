"""Experiments on what a backward reads and writes: saved state, operands, grad_output."""

from __future__ import annotations

import torch

from grader import protocol as p
from grader.executor import TensorSpec
from grader.grading.backward.experiments._compare import first_wrong
from grader.grading.backward.experiments._registry import Cases, experiment
from grader.grading.backward.vjp import add_forward, ask, export_gradients, export_outputs
from grader.grading.candidate import Candidate, names
from grader.grading.compare.outputs import check_output, same_bits
from grader.grading.compare.placement import parts
from grader.grading.outcome import diagnose, first_line
from grader.verdict.models import Diagnosis

NEW_TENSOR = "write into a new tensor"
SAVE = "keep what backward needs with ctx.save_for_backward, not in a global or on the module"


@experiment(
    "saved_tensor_mutated",
    question="Inputs, parameters and grad_outputs are the same in every bit after forward and backward.",
    remedy=NEW_TENSOR,
    rank=10,
    phases=("cause", "post-check"),
    lasting=True,
)
def saved_tensor_mutated(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    case = cases.first
    job = ask(candidate, case)
    operands = {f"input:a:{i}": value for i, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    labels = {f"input:a:{i}": case.operand_names.get(f"input[{i}]", f"input[{i}]") for i in range(len(case.inputs))}
    matching = candidate.matching(case)
    values = matching.values(case.state)
    for theirs, ours in parts(matching.places).items():
        if not set(ours) & set(case.buffers):
            operands[f"state:model:{theirs}"] = values[theirs].view(matching.places[ours[0]].shape)
            labels[f"state:model:{theirs}"] = ours[0]
    grad_outputs = {f"cotangent:a:{name}": value for name, value in case.cotangents.items()}
    job.export({source: _spec(value) for source, value in {**operands, **grad_outputs}.items()})
    result = candidate.attempt(job, "backward", "comparing inputs and parameters after a backward")
    if result.failure is not None:
        return None

    def changed(before: dict[str, torch.Tensor]) -> list[str]:
        after = result.sealed
        return [source for source, value in before.items() if source in after and not same_bits(after[source], value)]

    overwritten = [source.removeprefix("cotangent:a:") for source in changed(grad_outputs)]
    if overwritten:
        what = f"the backward changes the grad_output of {names(overwritten)} in place"
        return diagnose("grad_output_modified", what, where=f"variant {case.name}", remedy=NEW_TENSOR)
    mutated = [] if case.clone_inputs else [labels[source] for source in changed(operands)]
    if not mutated:
        return None
    what = f"forward or backward changes {names(mutated)} in place without autograd knowing"
    return diagnose("saved_tensor_mutated", what, remedy=NEW_TENSOR)


@experiment(
    "stale_saved_state",
    question="The backward of the first of several forwards is right, and later forwards leave its output as it was.",
    remedy=SAVE,
    rank=60,
)
def stale_saved_state(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Forward A, two forwards B, then the backward of A, which is not the case of the very first forward."""
    first, second = cases.second, cases.first
    job = candidate.script(first)
    for key, case in (("a", first), ("b", second), ("c", second)):
        job.put_inputs(key, case.inputs, requires_grad=True)
        add_forward(job, case, key)
    export_outputs(job, first, "a")
    wrt = candidate.wrt(first)
    job.step(p.Backward(tape="a", grads="a", cotangents=job.cotangents(first.cotangents), wrt=wrt))
    export_gradients(job, candidate, first, "a", first.wrt)
    result = candidate.attempt(job, "backward", "backward of the first of several forwards")
    if result.failure is not None:
        what = f"the backward of the first of several forwards raises {first_line(result.failure)}"
        return diagnose("stale_saved_state", what, remedy=SAVE)
    overwritten = [
        name for name in first.outputs if check_output(first, result, f"output:a:{name}", name).status == "failed"
    ]
    operand = first_wrong(candidate, first, result)
    if overwritten and cases.keeps_outputs:
        return diagnose(
            "output_overwritten",
            f"with gradients enabled, the next forwards overwrite the {overwritten[0]} that one returned",
            remedy="return a fresh tensor from each forward, not a buffer that is kept",
            stage="backward",
        )
    if operand is None:
        return None
    what = f"after forward A and forward B, the gradient of `{operand}` for A is wrong"
    return diagnose("stale_saved_state", what, remedy=SAVE)


def _spec(value: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(value.shape), value.dtype)
