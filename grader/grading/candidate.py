"""The submission under examination: its worker, its models, and how a case is put to it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec, WorkerClient, WorkerLost
from grader.grading.compare.parameter_matching import Matching, match
from grader.grading.oracle.case import Case
from grader.grading.oracle.large import is_large
from grader.grading.outcome import Stopped, diagnose, lost, raised
from grader.verdict.models import Device, Status, TimeLimits

MODEL = "model"


@dataclass(frozen=True)
class Made:
    """One model of a submission."""

    key: str
    """The worker's, beside MODEL."""
    init_inputs: object
    tensors: tuple[p.TensorInfo, ...]
    """Parameters and buffers."""
    matching: Matching
    has_buffers: bool


class Candidate:
    """One worker with the submission imported."""

    def __init__(self, worker: WorkerClient, device: Device, limits: TimeLimits) -> None:
        self.worker, self.device, self.limits = worker, device, limits
        self._made: list[Made] = []
        self._used: Made | None = None
        self._keys = (f"{MODEL}{index}" for index in itertools.count())

    def prepare(self, case: Case) -> Matching:
        """Have MODEL mean the one for the case's sizes, made when it is first asked for. Raises Stopped."""
        return self._model(case).matching

    def script(self, case: Case) -> JobBuilder:
        """A job that starts with the case's parameters and buffers in place."""
        self.prepare(case)
        script = JobBuilder(self.worker, self.device)
        self.reset(script, case)
        return script

    def reset(self, script: JobBuilder, case: Case) -> None:
        """Put the case's parameters and buffers in place."""
        names = self.prepare(case).names
        script.set_state(MODEL, {names[name]: value for name, value in case.state.items() if name in names})

    def reset_buffers(self, script: JobBuilder, case: Case) -> None:
        """Put the case's buffers in place: a forward may hang on those that it moves."""
        script.set_state(MODEL, {theirs: case.state[ours] for ours, theirs in self.buffers(case).items()})

    def operand(self, case: Case, name: str) -> str | None:
        """The candidate's name for an operand of the reference; None where it has none."""
        return name if name.startswith("input[") else self.prepare(case).names.get(name)

    def operands(self, case: Case) -> dict[str, str]:
        """Reference name to candidate name, for every operand that the candidate has."""
        found = {name: self.operand(case, name) for name in case.wrt}
        return {name: theirs for name, theirs in found.items() if theirs is not None}

    def buffers(self, case: Case) -> dict[str, str]:
        """Reference name to candidate name, for every buffer that the candidate has."""
        matched = self.prepare(case).names
        return {name: matched[name] for name in case.buffers if name in matched}

    def shape(self, case: Case, name: str) -> tuple[int, ...]:
        """Shape of an operand or buffer as the candidate keeps it."""
        if name.startswith("input["):
            return tuple(case.operand(name).shape)
        model = self._model(case)
        return next(info.shape or () for info in model.tensors if info.name == model.matching.names[name])

    def run(self, script: JobBuilder, stage: str, doing: str) -> JobResult:
        """Raises Stopped when the worker is lost or a step raises."""
        finding = self.attempt(script, stage, doing)
        if finding.failure is not None:
            raise raised(finding.failure, stage, doing)
        return finding

    def attempt(self, script: JobBuilder, stage: str, doing: str) -> JobResult:
        """Raises Stopped only when the worker is lost."""
        try:
            result = script.run(self.limits.call)
        except WorkerLost as error:
            raise lost(error, stage, doing) from error
        result.lost_as(lambda error: lost(error, stage, doing))
        return result

    def forget(self) -> None:
        """Have models with buffers constructed anew: what was asked may have left its graph in them."""
        self._made = [made for made in self._made if not made.has_buffers]
        self._used = None

    def _model(self, case: Case) -> Made:
        if self._used is None or self._used.init_inputs != case.init_inputs:
            made = next((made for made in self._made if made.init_inputs == case.init_inputs), None)
            if made is None:
                made = self._construct(case)
                self._made.append(made)
            doing = f"getting ready for variant {case.variant}"
            used = self._do([p.Drop(empty_cache=False), p.Use(model=MODEL, constructed=made.key)], doing)
            if used.failure is not None:
                raise raised(used.failure, "load", doing)
            self._used = made
        return self._used

    def _construct(self, case: Case) -> Made:
        key, seed = next(self._keys), secrets.randbits(62)
        doing = f"constructing ModelNew for variant {case.variant}"
        large = any(is_large(value) for value in case.state.values())
        step = p.Construct(
            model=key, init_inputs=case.init_inputs, device=self.device.value, seed=seed, on_device=large
        )
        evidence = self._do([step], doing)
        if evidence.failure is not None:
            raise _constructor_failed(evidence.failure, doing)
        (found,) = evidence.results
        assert isinstance(found, p.Constructed)
        tensors = (*found.parameters, *found.buffers)
        reference = [info_of(name, value) for name, value in case.state.items()]
        return Made(key, case.init_inputs, tensors, match(reference, tensors), bool(found.buffers))

    def _do(self, steps: Sequence[p.Step], doing: str) -> p.Evidence:
        """A job without tensors. Raises Stopped when the worker is lost."""
        try:
            self.worker.forget_results()
            return self.worker.run(steps, self.limits.construction)
        except WorkerLost as error:
            raise lost(error, "load", doing) from error


def _constructor_failed(failure: p.Failure, doing: str) -> Stopped:
    if failure.kind == "build":
        log = failure.builds[-1].log
        return Stopped(
            Status.BUILD_ERROR, diagnose("compile_error", first_compiler_error(log), detail={"log": log[-8192:]})
        )
    if failure.type_name == "TypeError" and "__init__()" in failure.text:
        message = f"ModelNew does not take the problem's constructor arguments: {failure.text.splitlines()[0]}"
        return Stopped(Status.INVALID_SUBMISSION, diagnose("constructor_signature", message))
    stopped = raised(failure, "load", doing)
    if stopped.diagnosis.code == "raised":
        return Stopped(
            stopped.status, diagnose("constructor_raised", stopped.diagnosis.message, detail=stopped.diagnosis.detail)
        )
    return stopped


def first_compiler_error(log: str) -> str:
    """The line that an author must look at first."""
    markers = (" error:", "error:", "fatal error", "undefined reference", "error   :", "Error:", " error ")
    for line in log.splitlines():
        if any(marker in line for marker in markers) and not line.startswith(("FAILED", "ninja:")):
            return line.strip()[:500]
    lines = [line for line in log.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:500] if lines else "the build failed and printed nothing"


def info_of(name: str, value: torch.Tensor) -> p.TensorInfo:
    return p.TensorInfo(name=name, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."))


def exports(kind: str, key: str, specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Export sources for names of one kind."""
    return {f"{kind}:{key}:{name}": spec for name, spec in specs.items()}


def output_specs(case: Case) -> dict[str, TensorSpec]:
    return {name: TensorSpec(expected.shape, expected.dtype) for name, expected in case.outputs.items()}


def export_buffers(script: JobBuilder, candidate: Candidate, case: Case) -> None:
    """As they are after the steps so far, by the candidate's names."""
    specs = {
        theirs: TensorSpec(candidate.shape(case, ours), case.buffers[ours].dtype)
        for ours, theirs in candidate.buffers(case).items()
    }
    script.export(exports("state", MODEL, specs))


def names(items: Sequence[str]) -> str:
    """`a`, `b` and `c`, in backticks."""
    quoted = [f"`{item}`" for item in items]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]
