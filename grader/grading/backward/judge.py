"""The backward stage: plain products on every case, then causes or traps, then one verdict with the cause first."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grader import protocol as p
from grader.executor import JobResult
from grader.grading.backward import experiments
from grader.grading.backward.classify import classify, describe
from grader.grading.backward.missing import explain_missing, ordinal
from grader.grading.backward.mistakes import explain_by_known_mistake, right_for_ones
from grader.grading.backward.vjp import Product, ask, export_outputs, product
from grader.grading.candidate import Candidate, export_buffers
from grader.grading.compare.outputs import check_buffers, check_output, differ
from grader.grading.oracle.case import Case
from grader.grading.oracle.control import reference_passes
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import Stopped, diagnose, errors_first, in_eval, raised
from grader.grading.random.seeded_gradients import check_other_sizes, reference_inconsistent
from grader.grading.random.seeded_values import with_own_values
from grader.verdict.models import BackwardResult, Diagnosis, StageStatus, Status, TensorCheck, VariantResult

MISSING_CODES = ("output_detached", "input_grad_none", "param_grad_none", "backward_not_implemented")
"""Codes that say that a gradient does not exist, rather than that it is wrong."""
NO_DERIVATIVE = ("derivative for", "no autograd formula", "does not have an autograd", "not differentiable")
"""In PyTorch's messages for an operation without a backward."""
INVALID_GRADIENT = re.compile(
    r"(\w+) returned an invalid gradient at index (\d+) - got (\[[^\]]*\])"
    r" but expected shape compatible with (\[[^\]]*\])"
)


@dataclass(frozen=True)
class BackwardJudgement:
    """`status` is CORRECT, MISSING_BACKWARD or WRONG_BACKWARD."""

    status: Status
    result: BackwardResult
    diagnoses: tuple[Diagnosis, ...]


def judge_backward(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], traps: Sequence[experiments.Cases]
) -> BackwardJudgement:
    """Every case's products, stopping at the first that fails; then its cause, or the traps. Raises Stopped.

    `traps`: in train() and, of a submission that may tell the modes apart, in eval().
    """
    started = time.monotonic()
    rows: dict[str, TensorCheck] = {}
    variants: list[VariantResult] = []
    diagnoses: list[Diagnosis] = []
    asked: Sequence[experiments.Experiment] = ()
    for case in cases:
        judged = judge_products(candidate, case)
        diagnoses = judged.diagnoses
        variants.append(
            VariantResult(variant=case.name, status=_status(diagnoses), seed=case.seed, tensors=tuple(judged.checks))
        )
        _keep_worst(rows, judged.checks)
        if diagnoses:
            if not judged.gradients_are_right:
                asked = () if judged.missing else experiments.CAUSES
                asked_on = next((trap for trap in traps if trap.first.training == case.training), traps[0])
                diagnoses = _causes(candidate, oracle, cases, case, judged, asked_on) + diagnoses
            break
    else:
        asked = experiments.TRAPS
        diagnoses = run_experiments(candidate, oracle, traps[0], asked)
        for others in traps[1:]:
            if verdict_of(diagnoses) is Status.CORRECT:
                found = run_experiments(candidate, oracle, others, experiments.TRAPS_IN_EVAL)
                diagnoses += [in_eval(diagnosis) for diagnosis in found if diagnosis.severity == "error"]
        if verdict_of(diagnoses) is Status.CORRECT:
            diagnoses += check_other_sizes(candidate, oracle, cases, traps[0].first, diagnoses)
        diagnoses += _not_comparable(cases)
    diagnoses = errors_first(diagnoses)
    status = verdict_of(diagnoses)
    result = BackwardResult(
        status=StageStatus.PASSED if status is Status.CORRECT else StageStatus.FAILED,
        gradients=tuple(rows.values()),
        variants=tuple(variants),
        experiments=tuple(experiment.__name__ for experiment in asked),
        seconds=time.monotonic() - started,
    )
    return BackwardJudgement(status, result, tuple(diagnoses))


@dataclass(frozen=True)
class Judged:
    """One product of one case."""

    checks: list[TensorCheck]
    diagnoses: list[Diagnosis]
    """Empty when it is right."""
    found: Product | None = None
    """None where the backward raised."""

    @property
    def gradients_are_right(self) -> bool:
        return all(diagnosis.code == "buffers_not_updated" for diagnosis in self.diagnoses)

    @property
    def missing(self) -> bool:
        return any(diagnosis.code in MISSING_CODES for diagnosis in self.diagnoses)


def judge_products(candidate: Candidate, case: Case) -> Judged:
    """One random-cotangent product of a case."""
    doing = f"backward of variant {case.name}"
    script = ask(candidate, case)
    export_outputs(script, case, "a")
    export_buffers(script, candidate, case)
    finding = candidate.attempt(script, "backward", doing)
    if finding.failure is not None:
        return _raised(candidate, case, finding, doing)
    outputs = {info.name: info for info in finding.of(p.Outputs)[0].tensors}
    detached = (
        [name for name in case.cotangents if not outputs[name].requires_grad]
        if set(outputs) >= set(case.cotangents)
        else []
    )
    found = product(candidate, case, finding)
    checks, faults = classify(case, found)
    where = f" (variant {case.name})"
    lost = [fault.name for fault in faults if fault.code in ("input_grad_none", "param_grad_none")]
    diagnoses = explain_missing(candidate, case, lost, detached, where) if lost or detached else []
    diagnoses += [
        diagnose(code, message + where, detail={**detail, "variant": case.name})
        for code, message, detail in describe([fault for fault in faults if fault.name not in lost])
    ]
    for name in case.outputs:
        check = check_output(case, finding, f"output:a:{name}", name)
        if check.status == "failed":
            message = f"with gradients enabled, {check.message}{where}"
            diagnoses.append(diagnose("output_wrong", message, stage="backward"))
    if not diagnoses:
        diagnoses = _moved_otherwise(case, check_buffers(case, finding, candidate.buffers(case)))
    return Judged(checks, diagnoses, found)


def _moved_otherwise(case: Case, buffers: Sequence[TensorCheck]) -> list[Diagnosis]:
    """Without gradients they were right: with them nothing moves them, or the backward does so once more."""
    wrong = differ(buffers)
    if wrong is None:
        return []
    message = (
        f"{wrong} after one forward with gradients and its backward in {'train()' if case.training else 'eval()'}, "
        f"and not after a forward without: update what is kept in the forward, once (variant {case.name})"
    )
    return [diagnose("buffers_not_updated", message, stage="backward")]


def _causes(
    candidate: Candidate,
    oracle: Oracle,
    cases: Sequence[Case],
    case: Case,
    judged: Judged,
    trap_cases: experiments.Cases,
) -> list[Diagnosis]:
    """What may be behind the faults of a case, before the faults themselves."""
    causes = _other_mode(candidate, cases, case)
    if causes or judged.missing:
        return causes
    causes = explain_by_known_mistake(oracle, case, judged.found) if judged.found is not None else []
    if causes:
        return causes
    known = {diagnosis.code for diagnosis in judged.diagnoses}
    found = run_experiments(candidate, oracle, trap_cases, experiments.CAUSES)
    causes = [diagnosis for diagnosis in found if diagnosis.code not in known]
    if not any(diagnosis.severity == "error" for diagnosis in causes):
        causes += right_for_ones(candidate, oracle, case)
    return causes


def _other_mode(candidate: Candidate, cases: Sequence[Case], case: Case) -> list[Diagnosis]:
    """The gradients of the same variant are right in the other one of train() and eval()."""
    other = next((o for o in cases if o.variant == case.variant and o.training != case.training), None)
    # Asked again even where it was right before: that may have worn off.
    if other is None or not (case.values_comparable and other.values_comparable):
        return []
    if judge_products(candidate, other).diagnoses:
        return []
    message = (
        "the gradients are right in eval() and wrong in train(): what the forward computes there alone, as the mean "
        "and the variance of a batch, carries gradients too; a term of theirs is missing or wrong"
        if case.training
        else "the gradients are right in train() and wrong in eval(): honour self.training in the backward too, as "
        "running statistics are constants and carry no gradients"
    )
    return [diagnose("train_eval_mismatch", f"{message} (variant {case.variant})", stage="backward")]


def _not_comparable(cases: Sequence[Case]) -> list[Diagnosis]:
    random = [case.name for case in cases if not case.values_comparable]
    if not random:
        return []
    message = (
        f"the reference draws random numbers in variant {', '.join(random)}: there, figures of the outputs' "
        "distribution were compared, and each gradient as a whole with the submission's own forward, where a seed "
        "repeats it"
    )
    return [diagnose("not_comparable", message, severity="info")]


def run_experiments(
    candidate: Candidate, oracle: Oracle, cases: experiments.Cases, asked: Sequence[experiments.Experiment]
) -> list[Diagnosis]:
    """Their diagnoses, errors before warnings before information. A lost worker ends them."""
    found: list[Diagnosis] = []
    seen = with_own_values(candidate, cases)
    for experiment in asked:
        try:
            diagnosis = experiment(candidate, seen)
        except Stopped as stopped:
            code = experiment.__name__
            found.append(diagnose(code, f"{(experiment.__doc__ or '').strip()} Instead: {stopped.diagnosis.message}"))
            break
        if diagnosis is None:
            continue
        error = diagnosis.severity == "error"
        if (error or diagnosis.code == "not_comparable") and not _has_control(oracle, experiment, cases, diagnosis):
            if error and diagnosis.code == "inconsistent_with_forward":
                found.append(reference_inconsistent(cases.first))
            continue
        found.append(diagnosis)
        if error and experiment in experiments.LASTING:
            break
    return errors_first(found)


def _has_control(
    oracle: Oracle, experiment: experiments.Experiment, cases: experiments.Cases, diagnosis: Diagnosis
) -> bool:
    """The reference passes it."""
    key = experiment.__name__, cases.first.seed, cases.first.training
    told = ("error",) if diagnosis.severity == "error" else ("error", "warning")
    return reference_passes(
        oracle, key, lambda reference: experiment(reference, with_own_values(reference, cases)), told
    )


def verdict_of(diagnoses: Sequence[Diagnosis]) -> Status:
    errors = [diagnosis for diagnosis in diagnoses if diagnosis.severity == "error"]
    if not errors:
        return Status.CORRECT
    if any(diagnosis.code in MISSING_CODES for diagnosis in errors):
        return Status.MISSING_BACKWARD
    return Status.WRONG_BACKWARD


def _raised(candidate: Candidate, case: Case, finding: JobResult, doing: str) -> Judged:
    failure = finding.failure
    assert failure is not None
    first = (failure.text.strip().splitlines() or [""])[0]
    if not any(isinstance(result, p.Outputs) for result in finding.evidence.results):
        raise raised(failure, "backward", doing)

    def judged(code: str, status: Literal["failed", "missing"], message: str) -> Judged:
        rows = [TensorCheck(name=case.operand_names[name], status=status, message=message) for name in case.wrt]
        detail = {"traceback": failure.traceback, "variant": case.name}
        return Judged(rows, [diagnose(code, message, detail=detail)])

    if failure.type_name == "NotImplementedError" or any(mark in first for mark in NO_DERIVATIVE):
        message = f"{doing} is not implemented: {first[:300]}; write the Function's backward"
        return judged("backward_not_implemented", "missing", message)
    if "invalid gradient" in first or "incorrect number of gradients" in first:
        return judged("grad_shape", "failed", f"{doing}: {_misshapen(first)}")
    if "modified by an inplace operation" in first:
        message = f"{doing}: a tensor that backward needs was changed in place: write into a new tensor ({first[:200]})"
        return judged("saved_tensor_mutated", "failed", message)
    again = candidate.attempt(ask(candidate, case, contiguous_grads=True), "backward", doing)
    if again.failure is None:
        message = (
            f"{doing} raises {failure.type_name} ({first[:200]}) unless grad_output is made contiguous: call "
            "grad_output.contiguous() before view() or data_ptr()"
        )
        return judged("assumes_contiguous_grad_output", "failed", message)
    raise raised(failure, "backward", doing)


def _misshapen(text: str) -> str:
    """PyTorch's words for a gradient of the wrong shape, with the remedy."""
    match = INVALID_GRADIENT.search(text)
    if match is None:
        return f"{text[:300]}; return one gradient for each argument of forward"
    function, index, got, due = match.groups()
    return (
        f"the backward of autograd.Function `{function.removesuffix('Backward')}` returns a gradient of shape {got} "
        f"for its {ordinal(int(index) + 1)} input of shape {due}: return gradients shaped like the inputs"
    )


def _status(diagnoses: Sequence[Diagnosis]) -> StageStatus:
    return StageStatus.FAILED if diagnoses else StageStatus.PASSED


def _keep_worst(rows: dict[str, TensorCheck], checks: Sequence[TensorCheck]) -> None:
    rank = {"missing": 3, "failed": 2, "not_checked": 1, "passed": 0}
    for check in checks:
        old = rows.get(check.name)
        worse = old is None or (rank[check.status], check.rel_rms_error or 0.0) > (
            rank[old.status],
            old.rel_rms_error or 0.0,
        )
        if worse:
            rows[check.name] = check
