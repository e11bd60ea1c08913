"""What a candidate's times are worth: beside the speed of light, and beside the reference compiled."""

from __future__ import annotations

from grader.models import Baseline, Device, Problem, StageStatus
from grader.record import Record
from grader.remote.launch import Role
from grader.stages.cases import Case
from grader.stages.outcome import diagnose
from grader.stages.reference import ReferenceDesk
from grader.stages.timing import flush_bytes, measure, too_fast, workload
from grader.workshop import Workshop


def appraise(
    workshop: Workshop, problem: Problem, device: Device, record: Record, *, tf32: bool, baselines: bool
) -> None:
    """Fill in bounds and baselines, when the candidate is gone and disturbs nothing.

    The times stand without them: whatever goes wrong here is said, and costs those figures alone.
    """
    if record.timing is None or record.timed is None or record.timing.status is not StageStatus.PASSED:
        return
    with record.stage("timing"):
        try:
            desk = workshop.desk(problem, device)
            work = workload.work(desk, record.timed)
            record.timing = workshop.light.bounds(desk, work, record.timing, tf32=tf32)
            desk.release()
            if baselines:
                found = _baselines(workshop, problem, desk, record.timed, tf32)
                record.timing = record.timing.model_copy(update={"baselines": found})
        except Exception as error:
            workshop.drop_desk(problem, device)
            message = f"the speed of light and other baselines could not be told: {type(error).__name__}: {error}"
            record.diagnoses.append(diagnose("not_appraised", message[:500], severity="info"))
    record.diagnoses += too_fast(record.timing)


def _baselines(
    workshop: Workshop, problem: Problem, desk: ReferenceDesk, case: Case, tf32: bool
) -> tuple[Baseline, ...]:
    device = desk.device

    def now() -> tuple[Baseline, ...]:
        flush = flush_bytes(device)
        variant = desk.module.variants[case.variant]
        with workshop.launcher.start(Role.REFERENCE, device) as worker:
            return measure(worker, problem, variant, case, device, tf32=tf32, flush_bytes=flush)

    return workshop.baselines.get(problem, case, workshop.environment(device), tf32, now)
