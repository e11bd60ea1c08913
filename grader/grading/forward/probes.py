"""The registry of forward probes: runs that a right forward passes and a cached result fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.control import reference_passes
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import in_eval
from grader.verdict.models import Diagnosis

Function = Callable[[Candidate, Oracle, Case], Diagnosis | None]


@dataclass(frozen=True)
class Probe:
    """A question about a forward whose outputs are right."""

    code: str
    """The code of its diagnosis."""
    question: str
    run: Function
    rank: int
    """Probes run by ascending rank; the first error ends them."""


_PROBES: dict[str, Probe] = {}


def probe(code: str, *, question: str, rank: int) -> Callable[[Function], Function]:
    """Register a function as a probe. It returns a diagnosis or None, and may raise Stopped."""

    def register(function: Function) -> Function:
        assert code not in _PROBES, f"{code} has a probe already"
        _PROBES[code] = Probe(code, question, function, rank)
        return function

    return register


def of_mode(diagnosis: Diagnosis, case: Case, training: bool) -> Diagnosis:
    """The diagnosis of a turn in this mode."""
    return diagnosis if training == case.training else in_eval(diagnosis)


def run_probes(candidate: Candidate, oracle: Oracle, cases: Sequence[Case]) -> tuple[Diagnosis, ...]:
    """Diagnoses of the probes on small cases, errors first; only errors after the first. Raises Stopped."""
    diagnoses = _probe(candidate, oracle, cases[0])
    for case in cases[1:]:
        if not any(diagnosis.severity == "error" for diagnosis in diagnoses):
            more = (diagnosis for diagnosis in _probe(candidate, oracle, case) if diagnosis.severity == "error")
            diagnoses = (*map(in_eval, more), *diagnoses)
    return diagnoses


def _probe(candidate: Candidate, oracle: Oracle, case: Case) -> tuple[Diagnosis, ...]:
    diagnoses: list[Diagnosis] = []
    for one in sorted(_PROBES.values(), key=lambda one: one.rank):
        diagnosis = one.run(candidate, oracle, case)
        if diagnosis is None:
            continue
        if diagnosis.severity != "error":
            diagnoses.insert(0, diagnosis)
        elif _reference_passes(oracle, one, case):
            return (diagnosis, *diagnoses)
    return tuple(diagnoses)


def _reference_passes(oracle: Oracle, one: Probe, case: Case) -> bool:
    key = one.code, case.seed, case.training
    return reference_passes(oracle, key, lambda reference: one.run(reference, oracle, case))
