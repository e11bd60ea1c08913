"""Does a backward leave alone what it was given, and keep what it needs where it belongs?"""

from __future__ import annotations

import torch

from grader import protocol as p
from grader.executor import JobBuilder, TensorSpec
from grader.grading.backward.experiments._conditions_common import Cases, first_wrong
from grader.grading.backward.vjp import add_forward, ask, export_gradients, export_outputs
from grader.grading.candidate import Candidate, names
from grader.grading.compare.outputs import check_output, same_bits
from grader.grading.oracle.case import Case
from grader.grading.outcome import diagnose, first_line
from grader.verdict.models import Diagnosis


def stale_saved_state(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Forward A, two of B, then differentiate A, which is not what the very first forward was of; its output stayed."""
    first, second = cases.second, cases.first
    script = candidate.script(first)
    for key, case in (("a", first), ("b", second), ("c", second)):
        script.put_inputs(key, case.inputs, requires_grad=True)
        add_forward(script, case, key)
    export_outputs(script, first, "a")
    _backward(script, candidate, first, "a")
    finding = candidate.attempt(script, "backward", "backward of the first of several forwards")
    if finding.failure is not None:
        return diagnose(
            "stale_saved_state", f"the backward of the first of several forwards raises {first_line(finding.failure)}"
        )
    overwritten = [
        name for name in first.outputs if check_output(first, finding, f"output:a:{name}", name).status == "failed"
    ]
    operand = first_wrong(candidate, first, finding)
    if overwritten and cases.keeps_outputs:
        return diagnose(
            "output_overwritten",
            f"with gradients enabled, the next forwards overwrite the {overwritten[0]} that one returned: "
            "return a fresh tensor from each forward, not a buffer that is kept",
            stage="backward",
        )
    if operand is None:
        return None
    return diagnose(
        "stale_saved_state",
        f"after forward A and forward B, the gradient of `{operand}` for A is wrong: "
        "keep what backward needs with ctx.save_for_backward, not in a global or on the module",
    )


def saved_tensor_mutated(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Inputs, parameters and grad_outputs are bitwise what they were before forward and backward."""
    case = cases.first
    script = ask(candidate, case)
    held = {f"input:a:{i}": value for i, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    labels = {f"input:a:{i}": case.operand_names.get(f"input[{i}]", f"input[{i}]") for i in range(len(case.inputs))}
    for ours, theirs in candidate.prepare(case).names.items():
        if ours not in case.buffers:
            held[f"state:model:{theirs}"] = case.state[ours].view(candidate.shape(case, ours))
            labels[f"state:model:{theirs}"] = ours
    script.export({source: _spec(value) for source, value in held.items()})
    given = {f"cotangent:a:{name}": value for name, value in case.cotangents.items()}
    script.export({source: _spec(value) for source, value in given.items()})
    finding = candidate.attempt(script, "backward", "comparing inputs and parameters after a backward")
    if finding.failure is not None:
        return None
    overwritten = [
        source.removeprefix("cotangent:a:")
        for source, value in given.items()
        if source in finding.sealed and not same_bits(finding.sealed[source], value)
    ]
    if overwritten:
        message = f"the backward changes the grad_output of {names(overwritten)} in place: write into a new tensor"
        return diagnose("grad_output_modified", message)
    if case.clone_inputs:
        return None
    changed = [
        labels[source]
        for source, value in held.items()
        if source in finding.sealed and not same_bits(finding.sealed[source], value)
    ]
    if not changed:
        return None
    return diagnose(
        "saved_tensor_mutated",
        f"forward or backward changes {names(changed)} in place without autograd knowing: write into a new tensor",
    )


def _backward(script: JobBuilder, candidate: Candidate, case: Case, key: str) -> None:
    operands = candidate.operands(case)
    cotangents = script.cotangents(case.cotangents)
    script.step(p.Backward(tape=key, grads=key, cotangents=cotangents, wrt=tuple(operands.values())))
    export_gradients(script, candidate, case, key, case.wrt)


def _spec(value: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(value.shape), value.dtype)
