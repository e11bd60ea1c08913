"""What a candidate's times are worth: beside the speed of light, and beside the reference compiled."""

from __future__ import annotations

from grader.executor.launcher import Role
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.record import Record
from grader.grading.resources import Resources
from grader.grading.timing import flush_bytes, measure, too_fast, workload
from grader.verdict.models import Baseline, Device, Problem, StageStatus


def appraise(
    resources: Resources, problem: Problem, device: Device, record: Record, *, tf32: bool, baselines: bool
) -> None:
    """Fill in bounds and baselines, when the candidate is gone and disturbs nothing.

    The times stand without them: whatever goes wrong here is said, and costs those figures alone.
    """
    if record.timing is None or record.timed is None or record.timing.status is not StageStatus.PASSED:
        return
    with record.stage("timing"):
        try:
            oracle = resources.oracle(problem, device)
            work = workload.work(oracle, record.timed)
            record.timing = resources.light.bounds(oracle, work, record.timing, tf32=tf32)
            oracle.release()
            if baselines:
                found = _baselines(resources, problem, oracle, record.timed, tf32)
                record.timing = record.timing.model_copy(update={"baselines": found})
        except Exception as error:
            resources.drop_oracle(problem, device)
            message = f"the speed of light and other baselines could not be told: {type(error).__name__}: {error}"
            record.diagnoses.append(diagnose("not_appraised", message[:500], severity="info"))
    record.diagnoses += too_fast(record.timing)


def _baselines(resources: Resources, problem: Problem, oracle: Oracle, case: Case, tf32: bool) -> tuple[Baseline, ...]:
    device = oracle.device

    def now() -> tuple[Baseline, ...]:
        flush = flush_bytes(device)
        variant = oracle.module.variants[case.variant]
        with resources.launcher.start(Role.REFERENCE, device) as worker:
            return measure(worker, problem, variant, case, device, tf32=tf32, flush_bytes=flush)

    return resources.baselines.get(problem, case, resources.environment(device), tf32, now)
