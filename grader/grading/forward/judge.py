"""Does the forward match? Every case's outputs, sealed, beside the float64 reference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.candidate import MODEL, Candidate, export_buffers, exports, names, output_specs
from grader.grading.compare import known_mistakes, tolerance
from grader.grading.compare.outputs import check_buffers, check_output, differ, shape_text
from grader.grading.forward.input_sensitivity import run_probes
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.random.distribution import judge_distribution
from grader.verdict.models import Device, Diagnosis
from grader.verdict.stages import ForwardResult, StageStatus, TensorCheck, VariantResult

MAX_NAMED = 8
"""Outputs that a message lists."""

GELU_FORMS: tuple[tuple[Literal["gelu_tanh", "gelu_erf"], str, str], ...] = (
    (
        "gelu_tanh",
        "gelu_tanh_for_erf",
        "by its tanh approximation, the reference uses the exact erf form (largest gap 4.7e-4)",
    ),
    ("gelu_erf", "gelu_erf_for_tanh", "in its exact erf form, the reference uses the tanh approximation"),
)


@dataclass(frozen=True)
class ForwardJudgement:
    result: ForwardResult
    diagnoses: tuple[Diagnosis, ...]


def judge_forward(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], probed: Sequence[Case]
) -> ForwardJudgement:
    """Without a graph, as at inference. Stops at the first case that fails. Raises Stopped."""
    started = time.monotonic()
    variants: list[VariantResult] = []
    diagnoses: tuple[Diagnosis, ...] = ()
    for case in cases:
        checks, diagnoses = judge_case(candidate, oracle, case)
        failed = any(check.status in ("failed", "missing") for check in checks)
        status = StageStatus.FAILED if failed else StageStatus.PASSED
        variants.append(VariantResult(variant=case.name, status=status, seed=case.seed, tensors=tuple(checks)))
        if failed:
            diagnoses = _other_mode(candidate, oracle, cases, case, diagnoses) + diagnoses
            break
    else:
        diagnoses = run_probes(candidate, oracle, probed)
    result = _summary(variants, time.monotonic() - started)
    if any(diagnosis.severity == "error" for diagnosis in diagnoses):
        result = result.model_copy(update={"status": StageStatus.FAILED})
    return ForwardJudgement(result, diagnoses)


def _other_mode(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], case: Case, diagnoses: Sequence[Diagnosis]
) -> tuple[Diagnosis, ...]:
    """The same variant is right in the other one of train() and eval()."""
    other = next((o for o in cases if o.variant == case.variant and o.training != case.training), None)
    told = any(diagnosis.code in ("output_wrong", "output_nan") for diagnosis in diagnoses)
    if other is None or not told or not (case.values_comparable and other.values_comparable):
        return ()
    if any(check.status in ("failed", "missing") for check in judge_case(candidate, oracle, other)[0]):
        return ()
    modes = ("eval()", "train()") if case.training else ("train()", "eval()")
    message = (
        f"the output is right in {modes[0]} and wrong in {modes[1]}: honour self.training (variant {case.variant})"
    )
    return (diagnose("train_eval_mismatch", message),)


def judge_case(candidate: Candidate, oracle: Oracle, case: Case) -> tuple[list[TensorCheck], tuple[Diagnosis, ...]]:
    doing = f"forward of variant {case.name}"
    script = candidate.script(case)
    script.put_inputs("a", case.inputs)
    script.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
    script.export(exports("output", "a", output_specs(case)))
    export_buffers(script, candidate, case)
    script.step(p.Drop())
    finding = candidate.run(script, "forward", doing)
    wrong = structure(case, finding, candidate.device)
    if wrong:
        return wrong[0], (wrong[1],)
    checks = [check_output(case, finding, f"output:a:{name}", name) for name in case.outputs]
    bad = [check for check in checks if check.status == "failed"]
    if bad:
        sealed = finding.sealed.get(f"output:a:{bad[0].name}")
        if sealed is None:  # not what it was described as when it was to be copied out
            return checks, (diagnose("output_structure", bad[0].message or f"{bad[0].name} is missing"),)
        return checks, (explain(candidate, oracle, case, bad[0], sealed),)
    if not case.values_comparable:
        other = judge_distribution(candidate, oracle, case)
        if other is not None:
            name, diagnosis = other
            failed = TensorCheck(name=name, status="failed", message=diagnosis.message)
            return [*(check for check in checks if check.name != name), failed], (diagnosis,)
    held = candidate.buffers(case)
    states = check_buffers(case, finding, held)
    if differ(states) is not None:
        states = check_buffers(questions.without_gradients(oracle, case), finding, held)
    missing = [name for name in case.buffers if name not in held]
    checks += states + [
        TensorCheck(name=name, status="missing", message=f"buffer `{name}` is missing") for name in missing
    ]
    stale = differ(states)
    if stale is not None:
        message = f"{stale} after one forward in {'train()' if case.training else 'eval()'}"
        return checks, (diagnose("buffers_not_updated", message),)
    if missing and _changes(case, missing):
        message = f"the reference updates the buffer {names(missing)}, which ModelNew does not have"
        return checks, (diagnose("buffers_not_updated", message),)
    return [check for check in checks if check.status != "missing"], ()


def structure(case: Case, finding: JobResult, device: Device) -> tuple[list[TensorCheck], Diagnosis] | None:
    """Another number, kind, shape, dtype or device of outputs than the reference returns."""
    outputs = {info.name: info for info in finding.of(p.Outputs)[0].tensors}
    due = (*case.outputs, *sorted(case.others))
    if set(outputs) != set(due):
        some = list(outputs)[:MAX_NAMED]
        wanted, got = names(due), names(some) if some else "nothing"
        got += f" and {len(outputs) - len(some)} more" if len(outputs) > len(some) else ""
        message = f"the reference returns {wanted}, ModelNew returns {got}"
        return _all_failed(case, message), diagnose("output_structure", message)
    for name in case.others:
        if outputs[name].kind == "tensor":
            message = f"{name} is a tensor, the reference's is none"
            return _all_failed(case, message), diagnose("output_structure", message)
    for name, expected in case.outputs.items():
        info = outputs[name]
        dtype = str(expected.dtype).removeprefix("torch.")
        if info.kind != "tensor":
            message = f"{name} is {'None' if info.kind == 'none' else 'a ' + info.type_name}, not a tensor"
            return _all_failed(case, message), diagnose("output_structure", message)
        if info.shape != expected.shape:
            shapes = f"{shape_text(info.shape)}, the reference's has {shape_text(expected.shape)}"
            message = f"{name} has shape {shapes} (variant {case.name})"
            return _all_failed(case, message), diagnose("output_shape", message)
        if info.dtype != dtype:
            message = f"{name} has dtype {info.dtype}, the reference's has {dtype}"
            return _all_failed(case, message), diagnose("output_dtype", message)
        if info.device != device.value:
            message = f"{name} is on {info.device}, the reference's is on {device.value}"
            return _all_failed(case, message), diagnose("output_device", message)
    return None


def explain(candidate: Candidate, oracle: Oracle, case: Case, check: TensorCheck, sealed: torch.Tensor) -> Diagnosis:
    """The one sentence for a wrong output; names the mistake where it is a known one."""
    where = f" (variant {case.name})"
    if check.message and "NaN or infinity" in check.message:
        return diagnose("output_nan", check.message + where)
    missing = [name for name in candidate.prepare(case).missing if name not in case.buffers]
    if missing:
        message = f"ModelNew has no parameter for the reference's {names(missing)}; {check.message}{where}"
        return diagnose("parameters_missing", message)
    known = known_mistake(oracle, case, check, sealed, where)
    return known or diagnose("output_wrong", f"{check.message}{_left_out(oracle, case, check, sealed)}{where}")


def known_mistake(oracle: Oracle, case: Case, check: TensorCheck, sealed: torch.Tensor, where: str) -> Diagnosis | None:
    """A mistake that can be told from the values: rounded to fewer bits, or the other form of GELU."""
    for dtype in (torch.bfloat16, torch.float16):
        if (
            sealed.dtype is torch.float32
            and torch.equal(sealed.to(dtype).float(), sealed)
            and bool((sealed != sealed.round()).any())
        ):
            narrow = str(dtype).removeprefix("torch.")
            return diagnose("low_precision", f"{check.name} was rounded to {narrow}: {check.message}{where}")
    for substitute, code, said in GELU_FORMS:
        lookalike = known_mistakes.outputs(oracle, case, substitute).get(check.name)
        if lookalike is not None and tolerance.check(lookalike, sealed).status == "passed":
            return diagnose(code, f"{check.name} matches GELU {said}: {check.message}{where}")
    return None


def _left_out(oracle: Oracle, case: Case, check: TensorCheck, sealed: torch.Tensor) -> str:
    """What is right but for parameters or buffers that start as zeros or ones, or all alike."""
    for moved, expected in known_mistakes.as_constructed(oracle, case):
        if tolerance.check(expected[check.name], sealed).status == "passed":
            return f"; it would be right with {names(moved)} as constructed, and values move in training: read them"
    return ""


def _changes(case: Case, buffers: Sequence[str]) -> bool:
    return any(
        not torch.equal(case.buffers[name].reference64.to(case.state[name]), case.state[name]) for name in buffers
    )


def _all_failed(case: Case, message: str) -> list[TensorCheck]:
    return [
        TensorCheck(name=name, status="failed", shape=expected.shape, message=message)
        for name, expected in case.outputs.items()
    ]


def _summary(variants: Sequence[VariantResult], seconds: float) -> ForwardResult:
    checks = [check for variant in variants for check in variant.tensors]
    compared = [check for check in checks if check.max_abs_error is not None]
    failed = any(variant.status is StageStatus.FAILED for variant in variants)

    def all_pass(field: str) -> bool | None:
        votes = [getattr(check, field) for check in checks if getattr(check, field) is not None]
        return all(votes) and not any(check.status == "missing" for check in checks) if votes else None

    return ForwardResult(
        status=StageStatus.FAILED if failed else StageStatus.PASSED,
        variants=tuple(variants),
        max_abs_error=max((check.max_abs_error for check in compared if check.max_abs_error is not None), default=None),
        rel_rms_error=max((check.rel_rms_error for check in compared if check.rel_rms_error is not None), default=None),
        passes_1e_4=all_pass("passes_1e_4"),
        passes_1e_2=all_pass("passes_1e_2"),
        seconds=seconds,
    )
