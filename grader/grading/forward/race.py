"""Tells a race, random numbers, wrong results and what earlier calls leave by repeating one forward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from grader import protocol as p
from grader.executor import JobResult
from grader.grading import chance
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.outputs import are_right, check_output
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import same_bits
from grader.grading.forward.explain import explain
from grader.grading.forward.one_forward import add_forward
from grader.grading.messages import VARIES, diagnose
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.patterns.unwritten import unwritten
from grader.verdict.models import Diagnosis

REPEATED = "repeats"
"""The key of a diagnosis's detail for an output that changes between equal forwards."""


@dataclass(frozen=True)
class Repeats:
    """Several equal forwards of a case."""

    case: Case
    result: JobResult
    count: int

    @cached_property
    def right(self) -> int:
        """The number of those with right results."""
        return sum(are_right(self.case, self.result, str(turn)) for turn in range(self.count))

    def outputs(self, name: str) -> list[torch.Tensor | None]:
        """One output of each; None where it has another shape or dtype."""
        return [self.result.sealed.get(p.output_source(turn, name)) for turn in range(self.count)]


def race(candidate: Candidate, case: Case, message: str, *, some_wrong: bool = False) -> Diagnosis | None:
    """`output_wrong` with this message if some of several equal forwards are right, or None.

    With `some_wrong`, some must be wrong as well: all are right where what came before was at fault. Raises Stopped.
    """
    repeats = _repeated(candidate, case)
    if not repeats.right or (some_wrong and repeats.right == repeats.count):
        return None
    return _some_right(repeats, message)


def race_of_wrong_forward(candidate: Candidate, case: Case, message: str) -> Diagnosis | None:
    """`output_wrong` if a forward that was wrong at first is right when repeated, or wrong in another way.

    None if all are wrong alike. Raises Stopped.
    """
    repeats = _repeated(candidate, case)
    if repeats.right:
        return _some_right(repeats, message)
    name = _differing(repeats)
    if name is None:
        return None
    if _same_under_one_seed(candidate, case, name):
        remedy = "leave them out" if case.training else "leave them out in eval(): honour self.training"
        drawn = f"{message}; it draws random numbers, where the reference draws none"
        return _race(drawn, case, repeats.count, remedy=remedy)
    pattern = unwritten(case, name, case.outputs[name], [value for value in repeats.outputs(name) if value is not None])
    how = f"are wrong {pattern}" if pattern else "are all wrong, and differ by more than rounding"
    raced = f"{message}; {repeats.count} equal forwards {how}"
    return _race(raced, case, repeats.count, remedy=pattern.remedy if pattern else VARIES)


def _some_right(repeats: Repeats, message: str) -> Diagnosis:
    what = f"{message}; {repeats.right} of {repeats.count} equal forwards are right"
    return _race(what, repeats.case, repeats.count)


def wrong_alone(candidate: Candidate, oracle: Oracle, case: Case, message: str) -> Diagnosis | None:
    """The fault of a forward that runs alone: a race, or values; None if all is right then.

    `message` says what was seen before. Raises Stopped.
    """
    raced = race(candidate, case, message, some_wrong=True)
    if raced is not None:
        return raced
    result = _repeated(candidate, case, 1).result
    for name in case.outputs:
        check, sealed = check_output(case, result, name, "0"), result.sealed.get(p.output_source("0", name))
        if check.status == "failed" and sealed is not None:
            return explain(candidate, oracle, case, check, sealed)
    return None


def _same_under_one_seed(candidate: Candidate, case: Case, name: str) -> bool:
    """Whether equal forwards, of which others differ, give this output alike under one seed of torch."""
    first, *others = _repeated(candidate, case.alike(forward_seed=chance.new_seed())).outputs(name)
    return first is not None and all(other is not None and same_bits(first, other) for other in others)


def _repeated(candidate: Candidate, case: Case, count: int = 4) -> Repeats:
    job = candidate.script(case)
    for turn in range(count):
        add_forward(job, candidate, case, str(turn), before=case)
    job.step(p.Drop())
    return Repeats(case, candidate.run(job, "forward", f"equal forwards of {case.where}"), count)


def right_again(message: str, case: Case) -> Diagnosis:
    """`output_wrong` for a forward that is right when it and all calls before it are made again."""
    return _race(f"{message}; it is right when the same calls are made again", case, 2)


def _race(what: str, case: Case, repeats: int, *, remedy: str = VARIES) -> Diagnosis:
    return diagnose("output_wrong", what, where=case.where, remedy=remedy, detail={REPEATED: repeats})


def _differing(repeats: Repeats) -> str | None:
    """The first output that differs between equal forwards by more than two right results may, or None."""
    for name, expected in repeats.case.outputs.items():
        first, *others = repeats.outputs(name)
        if first is None or not (expected.rounds and repeats.case.comparable("outputs", name)):
            continue
        around = expected.around(first.view(expected.shape))
        # Halves first: the sum of two large numbers overflows.
        middles = ((first / 2 + other / 2).view(expected.shape) for other in others if other is not None)
        if any(not tolerance.passes(around, middle) for middle in middles):
            return name if all(other is not None for other in others) else None
    return None
