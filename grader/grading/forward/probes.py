"""The registry of forward probes: runs that a right forward passes and a cached result fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from grader.grading.candidate.candidate import Candidate
from grader.grading.control import reference_passes, with_memory
from grader.grading.messages import said_of_eval
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.verdict.models import Diagnosis

Function = Callable[[Candidate, Oracle, Case], Diagnosis | None]


@dataclass(frozen=True)
class Probe:
    """A question about a forward whose outputs are right."""

    code: str
    """The code of its diagnosis."""
    run: Function
    rank: int
    """Probes run by ascending rank; the first error ends them."""


FORWARDS_EACH = 16
"""Forwards of a probe, on average over all of them, on both sides and in both modes; a fourth as many are
in float64."""
NARROW = "narrow_inputs"
"""The probe of inputs unlike the drawn ones, which runs last of all (`other_inputs.py`)."""
INFORMATION = frozenset({"assumes_contiguous_input"})
"""Probes and experiments that decide nothing; they are left out where each new layout of an input is compiled for."""
_PROBES: dict[str, Probe] = {}


def probe(code: str, *, rank: int) -> Callable[[Function], Function]:
    """Register a function as a probe. It returns a diagnosis or None, and may raise Stopped."""

    def register(function: Function) -> Function:
        assert code not in _PROBES, f"{code} has a probe already"
        _PROBES[code] = Probe(code, function, rank)
        return function

    return register


def of_mode(diagnosis: Diagnosis, case: Case, training: bool) -> Diagnosis:
    """The diagnosis of a turn in this mode."""
    return diagnosis if training == case.training else said_of_eval(diagnosis)


def probe_codes() -> tuple[str, ...]:
    """The codes of all probes, in the order in which they run."""
    return (*(one.code for one in sorted(_PROBES.values(), key=lambda one: one.rank)), NARROW)


def run_probes(
    candidate: Candidate, oracle: Oracle, cases: Sequence[Case], codes: Iterable[str]
) -> tuple[Diagnosis, ...]:
    """Diagnoses of these probes on small cases, errors first; only errors after the first case.

    `codes` are read one at a time, in the order in which the probes run. Raises Stopped.
    """
    run: list[str] = []
    diagnoses = _probe(candidate, oracle, cases[0], _noted(codes, run))
    for case in cases[1:]:
        if not any(diagnosis.severity == "error" for diagnosis in diagnoses):
            more = (one for one in _probe(candidate, oracle, case, run) if one.severity == "error")
            diagnoses = (*map(said_of_eval, more), *diagnoses)
    return diagnoses


def _noted(codes: Iterable[str], run: list[str]) -> Iterator[str]:
    for code in codes:
        run.append(code)
        yield code


def _probe(candidate: Candidate, oracle: Oracle, case: Case, codes: Iterable[str]) -> tuple[Diagnosis, ...]:
    diagnoses: list[Diagnosis] = []
    for one in (_PROBES[code] for code in codes if code != NARROW):

        def check(subject: Candidate, run: Function = one.run) -> Diagnosis | None:
            return run(subject, oracle, case)

        diagnosis = with_memory(candidate, oracle, partial(check, candidate), "forward")
        if diagnosis is None:
            continue
        if diagnosis.severity != "error":
            diagnoses.insert(0, diagnosis)
        elif reference_passes(candidate, oracle, case, one.code, check):
            return (diagnosis, *diagnoses)
    return tuple(diagnoses)
