"""The controls of a check: what fails for another reason than the candidate says nothing about it.

Memory may have run out, or the reference fails the check too. For example, a model whose forward updates state that
its output depends on, such as spectral normalization, gives another gradient each time. Controls run only after a
candidate has failed a check.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from grader.errors import ReferenceKilled, ReferenceOutOfMemory
from grader.grading.candidate.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.remembered import once
from grader.grading.shortage import is_shortage
from grader.grading.stopped import Stopped
from grader.verdict.models import Diagnosis, StageName, TimeLimits

Check = Callable[[Candidate], Diagnosis | None]


def with_memory(
    candidate: Candidate, oracle: Oracle, check: Callable[[], Diagnosis | None], stage: StageName
) -> Diagnosis | None:
    """The check's diagnosis; where the device's memory ran out, that of another try.

    Memory that neither the reference nor the submission needs is given back before that. Raises Stopped.
    """
    candidate.ran_out_of_memory = False
    try:
        diagnosis = check()
    except Exception as error:  # in the grader or in the reference
        if not is_shortage(error):
            raise
    else:
        if diagnosis is None or not candidate.ran_out_of_memory:
            return diagnosis
    oracle.release()
    candidate.release(stage)
    return check()


def reference_passes(
    candidate: Candidate,
    oracle: Oracle,
    case: Case,
    key: Hashable,
    check: Check,
    severities: Sequence[str] = ("error",),
) -> bool:
    """Whether the reference, graded as a candidate, gets no diagnosis of these severities from a check.

    `key` identifies the check of this case. Where memory runs out, the candidate's is given back for another try.
    Raises ReferenceKilled, ReferenceOutOfMemory, and Stopped if the candidate cannot give memory back.
    """

    def run() -> bool:
        passes = _passes(oracle, check, severities, candidate.limits)
        if passes is None:
            candidate.release("load")
            passes = _passes(oracle, check, severities, candidate.limits)
        if passes is None:
            raise ReferenceOutOfMemory(f"{oracle.problem.path}: out of memory while the reference was checked as well")
        return passes

    return once(case, ("control", key, tuple(severities)), run)


def _passes(oracle: Oracle, check: Check, severities: Sequence[str], limits: TimeLimits) -> bool | None:
    """Whether the reference passes; None where memory ran out, which says neither."""
    with oracle.models.lent() as worker:
        reference = Candidate(worker, oracle.device, limits)
        try:
            diagnosis = check(reference)
        except Stopped as stopped:
            if stopped.kill is not None:
                raise ReferenceKilled(f"{oracle.problem.path}: {stopped}") from stopped
            diagnosis = stopped.diagnosis
    if reference.ran_out_of_memory:
        return None
    return diagnosis is None or diagnosis.severity not in severities
