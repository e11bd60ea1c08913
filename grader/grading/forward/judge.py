"""Judges the forward: every case's outputs, sealed, beside the float64 reference; then the probes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading import chance
from grader.grading.budget import Drawn, Stopwatch, left_out
from grader.grading.candidate.buffers import explain_buffers, uses_updated_buffers
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import (
    check_buffers,
    check_output,
    differ,
    judge_structure,
    right_up_to_rounding,
    wrong_at_full_size,
)
from grader.grading.forward.constants import with_constants
from grader.grading.forward.explain import explain
from grader.grading.forward.modes import ignores_mode
from grader.grading.forward.one_forward import is_right, one_forward, outputs_of
from grader.grading.forward.probes import FORWARDS_EACH, INFORMATION, probe_codes, run_probes
from grader.grading.forward.race import REPEATED, race_of_wrong_forward
from grader.grading.messages import diagnose, fault_text, fold, in_backticks, wrong_in_one_mode
from grader.grading.oracle import capabilities, variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.patterns.large_tensors import stretch
from grader.grading.patterns.rounded import confirmed_roundings
from grader.grading.random.distribution import judge_distribution
from grader.grading.shortage import ran_short
from grader.grading.status import Judged, stage_status
from grader.verdict.models import Diagnosis
from grader.verdict.stages import ForwardResult, StageStatus, TensorCheck, VariantResult


@dataclass(frozen=True)
class JudgedForward(Judged[ForwardResult]):
    """The stage's result, and what else there is time for."""

    probes: tuple[str, ...]
    """The codes of the probes for which there is time."""
    sizes_left_out: frozenset[str] = frozenset()
    """The sizes for which there is no time."""


def judge_forward(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], probed: Sequence[Case], *, seconds: float
) -> JudgedForward:
    """Judge every case without a graph, up to the first failure, then run the probes. Raises Stopped.

    If the probes take more than `seconds`, a random choice of them runs. If values are wrong, they are judged again
    with parameters paired by their values under equal seeds.
    """
    judged = _judge(candidate, oracle, cases, probed, seconds)
    is_wrong = any(diagnosis.code == "output_wrong" for diagnosis in judged.diagnoses)
    if is_wrong and not candidate.worker.ended and candidate.pair_by_values(cases[0]):
        again = _judge(candidate, oracle, cases, probed, seconds)
        if again.result.status is StageStatus.PASSED:
            return again
        candidate.trust_names()
    if judged.result.status is StageStatus.PASSED or candidate.worker.ended or not candidate.own:
        return judged
    return with_constants(candidate, cases, judged, lambda: _judge(candidate, oracle, cases, probed, seconds))


def _judge(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], probed: Sequence[Case], seconds: float
) -> JudgedForward:
    """As `judge_forward`, for one way of pairing parameters."""
    started, watch = time.monotonic(), Stopwatch(lambda: candidate.clock() - oracle.process.seconds_run)
    variants, diagnoses, sizes_left_out = _compare(candidate, oracle, cases, watch, seconds)
    probes: tuple[str, ...] = ()
    if probed and not diagnoses:
        diagnoses, probes = _probe(candidate, oracle, probed, watch, seconds)
        if candidate.starts_slowly(seconds):
            diagnoses = (*diagnoses, _note_on_slow_starts(candidate, sizes_left_out))
    return JudgedForward(_result(variants, diagnoses, time.monotonic() - started), diagnoses, probes, sizes_left_out)


def _compare(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], watch: Stopwatch, seconds: float
) -> tuple[list[VariantResult], tuple[Diagnosis, ...], frozenset[str]]:
    """Results of the cases up to the first failure, its diagnosis, and the sizes for which there is no time."""
    variants, sizes_left_out = list[VariantResult](), frozenset[str]()
    for case in cases:
        if case.variant != cases[0].variant and not sizes_left_out and candidate.starts_slowly(seconds):
            sizes_left_out = _draw_sizes_to_leave_out(cases)
        if case.variant in sizes_left_out:
            continue
        if not case.training and not candidate.starts_slowly(seconds):
            candidate.forget()  # where weights are loaded for inference, a new model is called in eval() first
        with watch.of(case.variant):
            checks, diagnosis = judge_case(candidate, oracle, case)
        candidate.release_after(case, "forward")
        status = StageStatus.PASSED if diagnosis is None else StageStatus.FAILED
        variants.append(VariantResult(variant=case.name, status=status, seed=case.seed, tensors=tuple(checks)))
        if diagnosis is not None and candidate.worker.ended:
            return variants, (diagnosis,), sizes_left_out
        if diagnosis is not None:
            failed = {check.name for check in checks if check.status == "failed" and check.name in case.outputs}
            compare = partial(_compare_outputs, candidate)
            variants += wrong_at_full_size(candidate, cases, case, failed, compare, "forward")
            other_mode = _other_mode(candidate, oracle, cases, case, diagnosis)
            diagnoses = (diagnosis,) if other_mode is None else tuple(fold(other_mode, [diagnosis]))
            return variants, diagnoses, sizes_left_out
    return variants, (), sizes_left_out


def _compare_outputs(candidate: Candidate, case: Case) -> list[TensorCheck]:
    """The comparison of each output of a plain forward."""
    result = candidate.run(one_forward(candidate, case), "forward", f"forward of variant {case.name}")
    return [check_output(case, result, name) for name in case.outputs]


def _probe(
    candidate: Candidate, oracle: Oracle, probed: Sequence[Case], watch: Stopwatch, seconds: float
) -> tuple[tuple[Diagnosis, ...], tuple[str, ...]]:
    """The diagnoses of the probes for which there is time, and the codes of these."""
    codes, first = probe_codes(), probed[0]
    limit = seconds / (FORWARDS_EACH * len(codes))
    each = FORWARDS_EACH * watch.steady(first.variant, limit, partial(judge_case, candidate, oracle, first))
    each += FORWARDS_EACH / 4 * oracle.exact_seconds(first)
    if candidate.starts_slowly(seconds):
        codes = tuple(code for code in codes if code not in INFORMATION)
    drawn = Drawn(codes, each, seconds, candidate.clock)
    diagnoses = run_probes(candidate, oracle, probed, drawn)
    return (*diagnoses, *left_out("forward's probes", drawn.left_out, each)), tuple(drawn.begun)


def _note_on_slow_starts(candidate: Candidate, sizes_left_out: frozenset[str]) -> Diagnosis:
    sizes = f"the size {in_backticks(sorted(sizes_left_out))}, drawn at random, and " if sizes_left_out else ""
    why = f"a first call takes {candidate.slowest_seconds:.2g} s, as one that compiles does"
    return diagnose("checks_left_out", f"{why}: {sizes}strided inputs were left out", severity="info")


def _draw_sizes_to_leave_out(cases: Sequence[Case]) -> frozenset[str]:
    """All but a random one of the sizes between the first and the last, which is timed."""
    between = list(dict.fromkeys(case.variant for case in cases))[1:-1]
    return frozenset(chance.draw.sample(between, max(0, len(between) - 1)))


def judge_case(candidate: Candidate, oracle: Oracle, case: Case) -> tuple[list[TensorCheck], Diagnosis | None]:
    """A row for every output and buffer of one forward, and what is wrong. Raises Stopped."""
    result = candidate.run(one_forward(candidate, case), "forward", f"forward of {case.where}")
    other_structure = judge_structure(case, result, candidate.device, lambda: oracle.traits(case).outputs)
    if other_structure is not None:
        return _all_failed(case, other_structure.message), other_structure
    checks = [check_output(case, result, name) for name in case.outputs]
    wrong = next((check for check in checks if check.status == "failed"), None)
    if wrong is not None:
        return checks, _wrong_output(candidate, oracle, case, result, wrong, _beside(checks, wrong))
    actual = {check.name: result.sealed.get(p.output_source("a", check.name)) for check in checks}
    for name, pattern in confirmed_roundings(oracle, case, "outputs", actual, partial(outputs_of, candidate)).items():
        checks = [one.model_copy(update={"status": "failed"}) if one.name == name else one for one in checks]
        return checks, diagnose(pattern.code, f"{name} {pattern}", where=case.where, remedy=pattern.remedy)
    if not case.values_comparable:
        other_distribution = judge_distribution(candidate, oracle, case)
        if other_distribution is not None:
            name, diagnosis = other_distribution
            failed = TensorCheck(name=name, status="failed", message=diagnosis.message)
            return [*(check for check in checks if check.name != name), failed], diagnosis
    buffers, stale = _judge_buffers(candidate, oracle, case, result)
    return checks + buffers, stale


def _beside(checks: Sequence[TensorCheck], wrong: TensorCheck) -> str:
    """A clause on the other outputs: which are wrong, and which are right."""
    clause = ""
    for status, how in (("failed", "wrong too"), ("passed", "right")):
        names = [check.name for check in checks if check is not wrong and check.status == status]
        if names:
            clause += f"; {in_backticks(names)} {'are' if len(names) > 1 else 'is'} {how}"
    return clause


def _wrong_output(
    candidate: Candidate, oracle: Oracle, case: Case, result: JobResult, wrong: TensorCheck, beside: str
) -> Diagnosis:
    sealed = result.sealed.get(p.output_source("a", wrong.name))
    if sealed is None:  # another tensor when it was exported than when it was described
        what, remedy = wrong.message or f"{wrong.name} is missing", "return a dense tensor on the input's device"
        return diagnose("output_structure", what, where=case.where, remedy=remedy)
    try:
        raced = race_of_wrong_forward(candidate, case, wrong.message or wrong.name)
        return raced or explain(candidate, oracle, case, wrong, sealed, beside)
    except Exception as error:
        if not ran_short(error):
            raise
        return _shortly_explained(case, wrong, sealed)


def _shortly_explained(case: Case, check: TensorCheck, sealed: torch.Tensor) -> Diagnosis:
    """The diagnosis where the device's memory is too short to look for more than the place."""
    seen, where = check.message or f"{check.name} is wrong", stretch(sealed, case.outputs[check.name])
    if where is not None:
        return diagnose("output_wrong", f"{check.name} {where}; {seen}", where=case.where, remedy=where.remedy)
    remedy = "the device's memory is too short to look for a pattern; compare intermediate results, step by step"
    return diagnose("output_wrong", seen, where=case.where, remedy=remedy)


def _judge_buffers(
    candidate: Candidate, oracle: Oracle, case: Case, result: JobResult
) -> tuple[list[TensorCheck], Diagnosis | None]:
    """Rows of the buffers after the forward. A reference may update them differently without a graph."""
    matched = candidate.buffers(case)
    checks, compared = check_buffers(candidate, case, result), case
    if differ(checks) is not None:
        compared = variations.without_gradients(oracle, case)
        checks = check_buffers(candidate, compared, result)
    stale = differ(checks, case.wrt)
    if stale is not None:
        wrong = [check.name for check in checks if check.status == "failed"]
        counts = [name for name in wrong if capabilities.only_count(oracle, case, (name,))]
        if counts:
            candidate.leave_out(counts)
            return _judge_buffers(candidate, oracle, case, result)
        what = f"{stale} after one forward in {'train()' if case.training else 'eval()'}"
        actual = {ours: result.sealed.get(p.state_source(MODEL, theirs)) for ours, theirs in matched.items()}
        amount, remedy = explain_buffers(compared, {name: actual[name] for name in wrong}, oracle)
        return checks, diagnose("buffers_not_updated", what, where=case.where, amount=amount, remedy=remedy)
    missing = [name for name in case.buffers if name not in matched]
    if case.updated_buffers & set(missing) and not capabilities.only_count(oracle, case, tuple(missing)):
        checks += [TensorCheck(name=name, status="missing", message=f"buffer `{name}` is missing") for name in missing]
        what = f"the reference updates the buffer {in_backticks(missing)}, which ModelNew does not have"
        return checks, diagnose("buffers_not_updated", what, where=case.where, remedy="register it, and update it")
    return checks, None


def _other_mode(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], case: Case, diagnosis: Diagnosis
) -> Diagnosis | None:
    """`train_eval_mismatch` if the same variant is right in the other mode, up to rounding."""
    other = case.in_other_mode(cases)
    if other is None or diagnosis.code not in ("output_wrong", "output_nan") or REPEATED in diagnosis.detail:
        return None
    doing = f"forward of variant {other.name}"
    if not all(is_right(candidate, other, name, doing) for name in other.outputs):
        return None  # and what is wrong there need not be explained
    checks, fault = judge_case(candidate, oracle, other)
    if fault is not None or not all(map(right_up_to_rounding, checks)):
        return None
    why = fault_text(diagnosis, case.where)
    remedy = f"check what the forward computes in {'train' if case.training else 'eval'}() only"
    if ignores_mode(candidate, case):
        why, remedy = "ModelNew returns the same in both modes", "honour self.training"
        if uses_updated_buffers(oracle, case):
            remedy = f"in train(), compute the output from {in_backticks(sorted(case.updated_buffers))} as updated"
    what = f"{wrong_in_one_mode('the output is', case.training)}; {why}"
    return diagnose("train_eval_mismatch", what, where=f"variant {case.variant}", remedy=remedy)


def _all_failed(case: Case, message: str) -> list[TensorCheck]:
    return [
        TensorCheck(name=name, status="failed", shape=expected.shape, message=message)
        for name, expected in case.outputs.items()
    ]


def _result(variants: Sequence[VariantResult], diagnoses: Sequence[Diagnosis], seconds: float) -> ForwardResult:
    checks = [check for variant in variants for check in variant.tensors]

    def all_pass(field: str) -> bool | None:
        votes = [getattr(check, field) for check in checks if getattr(check, field) is not None]
        return all(votes) and not any(check.status == "missing" for check in checks) if votes else None

    return ForwardResult(
        status=stage_status(diagnoses),
        variants=tuple(variants),
        max_abs_error=max((check.max_abs_error for check in checks if check.max_abs_error is not None), default=None),
        rel_rms_error=max((check.rel_rms_error for check in checks if check.rel_rms_error is not None), default=None),
        passes_1e_4=all_pass("passes_1e_4"),
        passes_1e_2=all_pass("passes_1e_2"),
        seconds=seconds,
    )
