"""Tells whether what launches cost shows in a reference's time."""

from __future__ import annotations

import math

from grader import protocol as p
from grader.grading.compare.blocks import is_large
from grader.grading.oracle import capabilities
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import remembered


def launches_show(oracle: Oracle, case: Case, short_ms: float) -> bool:
    """Whether launch costs show in the reference's time: its kernels take less than `short_ms` on average."""
    if any(map(is_large, case.inputs)):
        return False
    return _ms_each(oracle, case) < short_ms


@remembered
def _ms_each(oracle: Oracle, case: Case) -> float:
    """Mean milliseconds of one operation of a forward; infinite if operations cannot be counted."""
    job = capabilities.script(oracle, case)
    job.put_inputs("t", case.inputs)
    # Not `counted_work`, whose backward needs memory that the candidate may hold now.
    job.step(p.Count(model=MODEL, inputs="t", training=case.training, clone_inputs=case.clone_inputs))
    for _ in range(3):
        job.step(p.Time(**case.timed("inference", model=MODEL)))
    job.step(p.Drop())
    result = oracle.process.run(job, tolerate_failure=True)
    if result.failure is not None:
        return math.inf
    operations = result.of(p.Counted)[0].forward.operations
    return float(min(timed.ms for timed in result.of(p.Timed)) / max(operations, 1))
