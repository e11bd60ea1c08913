"""The control of an experiment: what the reference itself does not pass says nothing about a candidate.

A model whose output hangs on state that its own forward moves, as spectral normalisation, gives another gradient each
time. It is asked only when a candidate does not pass, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from grader.models import Diagnosis, TimeLimits
from grader.stages.candidate import Candidate
from grader.stages.outcome import Stopped
from grader.stages.reference import ReferenceDesk

Question = Callable[[Candidate], Diagnosis | None]


def reference_passes(desk: ReferenceDesk, key: Hashable, question: Question, told: Sequence[str] = ("error",)) -> bool:
    """The reference, graded as a candidate, is not `told` of there either. `key` names the question and its case."""

    def ask() -> bool:
        with desk.lent() as worker:
            try:
                found = question(Candidate(worker, desk.device, TimeLimits()))
            except Stopped:
                return False
        return found is None or found.severity not in told

    return desk.remember(("control", key, tuple(told)), ask)
