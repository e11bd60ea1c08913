"""A last look at a submission that passed: does it stay within its tensors, and which kernels ran?

On the first case, which is small, and after everything else, so that neither the redzones nor the profiler disturb a
time, and that a worker which is lost here changes no verdict. What the worker tells is a claim: whoever rewrites it can
hide a fault here, and gains nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grader import protocol as p
from grader.errors import ProblemError
from grader.executor import JobBuilder, JobResult
from grader.grading.backward.vjp import export_gradients, product
from grader.grading.candidate import MODEL, Candidate, exports, output_specs
from grader.grading.compare.outputs import check_output
from grader.grading.compare.tolerance import check
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import Stopped, diagnose
from grader.machine.backends import backend
from grader.verdict.labels import Seen
from grader.verdict.models import Device, Diagnosis
from grader.verdict.stages import KernelUse

SHOWN_BREACHES = 4


@dataclass(frozen=True)
class Inspected:
    """What a profiler saw in one forward and backward, and in the reference's."""

    kernels: tuple[KernelUse, ...] = ()
    seen: Seen | None = None


def judge_bounds(candidate: Candidate, case: Case, *, backward: bool) -> Diagnosis | None:
    """Writes outside its tensors, or results that hang on memory that nobody wrote, in this pass."""
    finding = _guarded(candidate, case, backward, "nan")
    if finding is None:
        return None
    stage = "backward" if backward else "forward"
    told = finding.of(p.Guarded)[0].breaches
    if told:
        shown = [_said(breach, _display_names(candidate, case)) for breach in told[:SHOWN_BREACHES]]
        message = f"the {stage} writes {' and '.join(shown)} (variant {case.name}): check the index against the size"
        return diagnose("out_of_bounds_write", message, stage=stage)
    wrong = _first_wrong(candidate, case, finding, backward)
    if wrong is None:
        return None
    zeroed = _guarded(candidate, case, backward, "zero")
    if zeroed is None or _first_wrong(candidate, case, zeroed, backward) is not None:
        return None
    message = (
        f"{wrong} is wrong once uninitialised memory, and what lies around each tensor, is NaN, and right once it is "
        f"zero (variant {case.name}): initialise what is added to, and check the index against the size"
    )
    return diagnose("reads_unwritten_memory", message, stage=stage)


def profile(candidate: Candidate, oracle: Oracle, case: Case, *, backward: bool) -> Inspected:
    """Empty where the profiler, or the submission under it, failed."""
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=backward)
    script.step(_profile_step(script, case, tuple(candidate.operands(case).values()) if backward else ()))
    script.step(p.Drop())
    try:
        finding = candidate.attempt(script, "timing", "looking at kernels")
    except Stopped:
        return Inspected()
    if finding.failure is not None:
        return Inspected()
    told = finding.of(p.Profiled)[0]
    total = sum(kernel.ms for kernel in told.kernels)
    calls: dict[str, int] = {}
    shares: dict[str, float] = {}
    for kernel in told.kernels:
        calls[kernel.name] = calls.get(kernel.name, 0) + kernel.calls
        shares[kernel.name] = shares.get(kernel.name, 0.0) + (kernel.ms / total if total else 0.0)
    uses = [KernelUse(name=name, calls=calls[name], share=shares[name] if total else None) for name in calls]
    seen = Seen(
        on_gpu=candidate.device is Device.CUDA,
        calls=calls,
        reference_calls=_reference_calls(oracle, case, backward),
        streams=told.streams,
        graphs=told.graphs,
    )
    return Inspected(tuple(sorted(uses, key=lambda use: -(use.share or 0.0))), seen)


def _reference_calls(oracle: Oracle, case: Case, backward: bool) -> dict[str, int]:
    def ask() -> dict[str, int]:
        oracle.ready(case)
        script = JobBuilder(oracle.worker, oracle.device)
        script.set_state(MODEL, case.state)
        script.put_inputs("a", case.inputs, requires_grad=backward)
        script.step(_profile_step(script, case, case.wrt if backward else ()))
        script.step(p.Drop())
        try:
            told = oracle.run(script).of(p.Profiled)[0]
        except ProblemError:
            return {}
        return {kernel.name: kernel.calls for kernel in told.kernels}

    if not backend(oracle.device).profiles_quickly:  # it would slow this worker, whose times are needed
        return {}
    return oracle.remember(("profile", case.seed, backward), ask)


def _profile_step(script: JobBuilder, case: Case, wrt: tuple[str, ...]) -> p.Profile:
    return p.Profile(forward=_forward(case, bool(wrt)), backward=_backward(script, case, wrt) if wrt else None)


def _guarded(candidate: Candidate, case: Case, backward: bool, fill: Literal["nan", "zero"]) -> JobResult | None:
    """None where the pass raised, or the worker was lost: whose fault that is cannot be told."""
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=backward)
    differentiate = _backward(script, case, tuple(candidate.operands(case).values())) if backward else None
    script.step(p.Guard(forward=_forward(case, backward), backward=differentiate, fill=fill))
    script.export(exports("output", "a", output_specs(case)))
    if backward:
        export_gradients(script, candidate, case, "a", case.wrt)
    script.step(p.Drop(empty_cache=False))  # giving back what timing took would take a GPU longer than the look
    try:
        finding = candidate.attempt(script, "forward", "running between redzones")
    except Stopped:
        return None
    return finding if finding.failure is None else None


def _forward(case: Case, grad: bool) -> p.Forward:
    return p.Forward(
        model=MODEL, inputs="a", tape="a", training=case.training, grad=grad, clone_inputs=case.clone_inputs
    )


def _backward(script: JobBuilder, case: Case, wrt: tuple[str, ...]) -> p.Backward:
    return p.Backward(tape="a", grads="a", cotangents=script.cotangents(case.cotangents), wrt=wrt)


def _first_wrong(candidate: Candidate, case: Case, finding: JobResult, backward: bool) -> str | None:
    if not case.values_comparable:
        return None
    for name in case.outputs:
        if check_output(case, finding, f"output:a:{name}", name).status == "failed":
            return f"`{name}`"
    gradients = product(candidate, case, finding).gradients if backward else {}
    for name, gradient in gradients.items():
        expected = case.gradients[name]
        if gradient is not None and expected is not None and check(expected, gradient).status == "failed":
            return f"the gradient of `{case.operand_names[name]}`"
    return None


def _display_names(candidate: Candidate, case: Case) -> dict[str, str]:
    """By what the worker calls an operand."""
    return {theirs: case.operand_names.get(ours, ours) for ours, theirs in candidate.prepare(case).names.items()} | {
        name: shown for name, shown in case.operand_names.items() if name.startswith("input[")
    }


def _said(breach: p.Breach, displayed: Mapping[str, str]) -> str:
    where = "past the end of" if breach.side == "after" else "before the start of"
    kind, _, name = breach.name.partition(":")
    if breach.temporary:
        what = f"a temporary tensor that {breach.name} made"
    elif kind == "grad":
        what = f"the gradient of `{displayed.get(name, name)}`"
    elif kind == "cotangent":
        what = f"the grad_output of `{name}`"
    else:
        what = f"`{displayed.get(breach.name, breach.name)}`"
    return f"up to {breach.nbytes} bytes {where} {what}"
