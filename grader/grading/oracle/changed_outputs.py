"""Whether outputs may change in place before the backward, as by an activation with `inplace=True`."""

from __future__ import annotations

from grader import protocol as p
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle, remembered


@remembered
def outputs_may_change(oracle: Oracle, case: Case) -> bool:
    """Whether the reference's backward runs all the same: it saves none of its outputs.

    Not asked of a slow reference, nor where it draws random numbers.
    """
    if not case.wrt or not case.values_comparable or oracle.is_slow(case):
        return False
    job = questions.script(oracle, case)
    questions.add_graph(job, case)
    job.step(p.Overwrite(tape="a"))
    job.step(p.Backward(tape="a", grads="a", cotangents=job.cotangents(case.cotangents), wrt=case.wrt))
    job.step(p.Drop())
    return oracle.run(job, tolerate_failure=True).failure is None
