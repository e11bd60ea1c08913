"""Checks a submission that passed for accesses outside its tensors, and lists the kernels that ran.

It runs on the first case, which is small, after everything else: neither redzones nor the profiler disturb a time, and
a crash here changes no verdict. A kill that may come from outside is raised, so that it omits no check. The worker's
answers are claims: a submission that rewrites its worker can hide a fault here, and gains nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from grader import protocol as p
from grader.errors import ProblemError
from grader.executor import JobBuilder, JobResult
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import check_output
from grader.grading.candidate.parts import forward_step
from grader.grading.candidate.vjp import export_gradients, product
from grader.grading.compare import tolerance
from grader.grading.messages import MAX_LISTED, diagnose
from grader.grading.oracle import capabilities
from grader.grading.oracle.case import Case, export_outputs, is_input
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import remembered
from grader.grading.stopped import Stopped
from grader.machine.backends import backend
from grader.verdict.labels import Seen
from grader.verdict.models import Diagnosis, StageName
from grader.verdict.stages import KernelUse


@dataclass(frozen=True)
class Inspected:
    """A profiler's record of one forward and backward of the submission and of the reference."""

    kernels: tuple[KernelUse, ...] = ()
    seen: Seen | None = None


def judge_bounds(candidate: Candidate, case: Case, *, backward: bool, seconds: float) -> Diagnosis | None:
    """A write outside the pass's tensors, or a result that depends on unwritten memory.

    Only the information that it was left out if a pass takes longer than `seconds` between redzones.
    """
    stage: StageName = "backward" if backward else "forward"
    result = _guarded(candidate, case, backward, "nan", seconds)
    if result is None:
        return None
    if result.failure is not None:
        what = f"the {stage} took longer than {seconds:.2g} s between redzones, which would show writes out of bounds"
        return diagnose("checks_left_out", what, stage=stage, severity="info")
    breaches = result.of(p.Guarded)[0].breaches
    if breaches:
        displayed = _display_names(candidate, case)
        shown = " and ".join(_described(breach, displayed) for breach in breaches[:MAX_LISTED])
        return diagnose(
            "out_of_bounds_write",
            f"the {stage} writes {shown}",
            where=case.where,
            remedy="check the index against the size",
            stage=stage,
        )
    wrong = _first_wrong(candidate, case, result, backward)
    if wrong is None:
        return None
    zeroed = _guarded(candidate, case, backward, "zero", seconds)
    if zeroed is None or zeroed.failure is not None or _first_wrong(candidate, case, zeroed, backward) is not None:
        return None
    return diagnose(
        "reads_unwritten_memory",
        f"{wrong} is wrong when uninitialised memory and the memory around each tensor are filled with NaN, and right "
        "when they are filled with zeros",
        where=case.where,
        remedy="initialise accumulators, and check the index against the size",
        stage=stage,
    )


def profile(candidate: Candidate, oracle: Oracle, case: Case, *, backward: bool) -> Inspected:
    """The kernels of a forward and, with `backward`, a backward; empty if profiler or submission failed."""
    job = candidate.script(case)
    job.put_inputs("a", case.inputs, requires_grad=backward)
    job.step(_profile_step(job, case, candidate.wrt(case) if backward else ()))
    job.step(p.Drop())
    try:
        result = candidate.attempt(job, "timing", "profiling its kernels")
    except Stopped as stopped:
        if stopped.kill is not None:
            raise
        return Inspected()
    if result.failure is not None:
        return Inspected()
    profiled = result.of(p.Profiled)[0]
    total = sum(kernel.ms for kernel in profiled.kernels)
    calls: dict[str, int] = {}
    shares: dict[str, float] = {}
    for kernel in profiled.kernels:
        calls[kernel.name] = calls.get(kernel.name, 0) + kernel.calls
        shares[kernel.name] = shares.get(kernel.name, 0.0) + (kernel.ms / total if total else 0.0)
    uses = [KernelUse(name=name, calls=calls[name], share=shares[name] if total else None) for name in calls]
    seen = Seen(
        on_gpu=backend(candidate.device).streams,
        calls=calls,
        reference_calls=_reference_calls(oracle, case, backward),
        streams=profiled.streams,
        graphs=profiled.graphs,
    )
    return Inspected(tuple(sorted(uses, key=lambda use: -(use.share or 0.0))), seen)


@remembered
def _reference_calls(oracle: Oracle, case: Case, backward: bool) -> dict[str, int]:
    if not backend(oracle.device).profiles_quickly:  # the profiler leaves state behind, and this worker is still timed
        return {}
    job = capabilities.script(oracle, case)
    job.put_inputs("a", case.inputs, requires_grad=backward)
    job.step(_profile_step(job, case, case.wrt if backward else ()))
    job.step(p.Drop())
    try:
        profiled = oracle.process.run(job).of(p.Profiled)[0]
    except ProblemError:
        return {}
    return {kernel.name: kernel.calls for kernel in profiled.kernels}


def _profile_step(job: JobBuilder, case: Case, wrt: tuple[str, ...]) -> p.Profile:
    return p.Profile(forward=forward_step(case, grad=bool(wrt)), backward=_backward(job, case, wrt) if wrt else None)


def _guarded(
    candidate: Candidate, case: Case, backward: bool, fill: Literal["nan", "zero"], seconds: float
) -> JobResult | None:
    """None if the pass raised or the worker was lost, which the redzones themselves may cause.

    A result with a failure is one that took too long.
    """
    job = candidate.script(case)
    job.put_inputs("a", case.inputs, requires_grad=backward)
    differentiate = _backward(job, case, candidate.wrt(case)) if backward else None
    forward = forward_step(case, grad=backward)
    job.step(p.Guard(forward=forward, backward=differentiate, fill=fill, seconds=seconds))
    export_outputs(job, case, "a")
    if backward:
        export_gradients(job, candidate, case, "a", case.wrt)
    job.step(p.Drop(keep_bytes=None))  # on a GPU, emptying the cache takes longer than the check
    try:
        result = candidate.attempt(job, "forward", "running between redzones")
    except Stopped as stopped:
        if stopped.kill is not None:
            raise
        return None
    return result if result.failure is None or result.failure.type_name == "TooLong" else None


def _backward(job: JobBuilder, case: Case, wrt: tuple[str, ...]) -> p.Backward:
    return p.Backward(tape="a", grads="a", cotangents=job.cotangents(case.cotangents), wrt=wrt)


def _first_wrong(candidate: Candidate, case: Case, result: JobResult, backward: bool) -> str | None:
    if not case.values_comparable:
        return None
    for name in case.outputs:
        if check_output(case, result, name).status == "failed":
            return f"`{name}`"
    gradients = product(candidate, case, result).gradients if backward else {}
    for name, gradient in gradients.items():
        expected = case.gradients[name]
        if gradient is not None and expected is not None and not tolerance.passes(expected, gradient):
            return f"the gradient of `{case.operand_names[name]}`"
    return None


def _display_names(candidate: Candidate, case: Case) -> dict[str, str]:
    """Display names by the worker's names."""
    places = candidate.matching(case).places
    return {place.name: case.operand_names.get(ours, ours) for ours, place in places.items()} | {
        name: shown for name, shown in case.operand_names.items() if is_input(name)
    }


def _described(breach: p.Breach, displayed: Mapping[str, str]) -> str:
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
