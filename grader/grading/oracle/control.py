"""The control of an experiment: what the reference itself does not pass says nothing about a candidate.

A model whose output hangs on state that its own forward moves, as spectral normalisation, gives another gradient each
time. It is asked only when a candidate does not pass, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from grader.grading.candidate import Candidate
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import Stopped
from grader.verdict.models import Diagnosis, TimeLimits

Question = Callable[[Candidate], Diagnosis | None]


def reference_passes(oracle: Oracle, key: Hashable, question: Question, told: Sequence[str] = ("error",)) -> bool:
    """The reference, graded as a candidate, is not `told` of there either. `key` names the question and its case."""

    def ask() -> bool:
        with oracle.lent() as worker:
            try:
                found = question(Candidate(worker, oracle.device, TimeLimits()))
            except Stopped:
                return False
        return found is None or found.severity not in told

    return oracle.remember(("control", key, tuple(told)), ask)
