"""Adds figures to compare a candidate's times with: the roofline bound, and the reference compiled."""

from __future__ import annotations

from grader.catalog.requests import Request
from grader.executor.launcher import Role
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.record import Record
from grader.grading.resources import Resources
from grader.grading.timing import Baselines, above_roofline, measure_baselines, workload
from grader.machine.backends import backend
from grader.options import GraderOptions
from grader.verdict.stages import StageStatus


def add_roofline_and_baselines(resources: Resources, request: Request, record: Record, options: GraderOptions) -> None:
    """Fill in bounds and baselines, once the candidate is gone and cannot be disturbed.

    The times stand without them: a failure here costs these figures alone, and is noted in a diagnosis.
    """
    if record.timing is None or record.timed is None or record.timing.status is not StageStatus.PASSED:
        return
    with record.stage("timing"):
        try:
            oracle = resources.oracle(request.problem, request.device, request.precision)
            work = workload.work(oracle, record.timed)
            record.timing = resources.roofline.bounds(
                oracle,
                work,
                record.timing,
                tf32=not options.strict_fp32,
                narrow=workload.narrow_operands(record.timed),
            )
            oracle.release()
            if options.baselines:
                found = _baselines(resources, oracle, record.timed, not options.strict_fp32)
                record.timing = record.timing.model_copy(update={"baselines": found.timed})
                record.diagnoses += [diagnose("not_appraised", why, severity="info") for why in found.missing]
        except Exception as error:
            resources.drop_oracle(request.problem, request.device, request.precision)
            what = f"the roofline bound and baselines could not be measured: {type(error).__name__}: {error}"
            record.diagnoses.append(diagnose("not_appraised", what[:500], severity="info"))
    record.diagnoses += above_roofline(record.timing)


def _baselines(resources: Resources, oracle: Oracle, case: Case, tf32: bool) -> Baselines:
    device = oracle.device

    def measure() -> Baselines:
        flush = backend(device).flush_bytes()
        variant = oracle.module.variants[case.variant]
        with resources.launcher.start(Role.REFERENCE, device) as worker:
            given = oracle.problem, oracle.importing(), resources.cache, variant, case, device
            return measure_baselines(worker, *given, tf32=tf32, flush_bytes=flush, limits=resources.limits)

    environment = resources.environment(device)
    return resources.baselines.get(oracle.problem, case, environment, tf32, measure, oracle.precision)
