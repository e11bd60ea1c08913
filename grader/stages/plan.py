"""Which cases a submission is put to: sizes, modes and draws, by device and by how thorough the grading is to be."""

from __future__ import annotations

from dataclasses import dataclass

from grader.errors import UserError
from grader.models import Device
from grader.problem_module import FULL
from grader.stages import questions
from grader.stages.backward.experiments import Cases
from grader.stages.cases import Case
from grader.stages.reference import ReferenceDesk
from grader.stages.timing.rounds import QUICK, THOROUGH, Plan

CPU = "cpu"
"""The variant that stands for full sizes on the CPU board."""
SMALL = "small"
DRAWS = 2
"""Of the small and the odd sizes, in a thorough grading."""


@dataclass(frozen=True)
class Todo:
    cases: tuple[Case, ...]
    """Small sizes first, so that a fault shows quickly; in eval() too, even where that is the same to the reference."""
    traps: Cases | None
    """For the backward's experiments; None where the problem has nothing to differentiate."""
    timed: Case
    rounds: Plan


def make(desk: ReferenceDesk, *, variant: str | None, quick: bool) -> Todo:
    """Raises UserError for an unknown variant, ProblemError for a problem that cannot be graded on this device."""
    chosen = variants(desk, variant)
    cases = []
    for name in chosen:
        thorough = not quick and name not in (FULL, CPU)
        cases += [desk.case(name, draw=draw) for draw in range(DRAWS if thorough else 1)]
    differ = desk.remember(("modes differ", chosen[0]), lambda: desk.modes_differ(chosen[0]))
    cases.insert(1, desk.case(chosen[0], training=False) if differ else cases[0].in_eval())
    first = chosen[0]
    traps = None
    if cases[0].wrt:
        traps = Cases(
            first=desk.case(first, draw=0),
            second=desk.case(first, draw=1),
            constant=desk.case(first, draw=0, constant_cotangents=True),
            keeps_outputs=questions.keeps_outputs(desk, cases[0]),
        )
    return Todo(tuple(cases), traps, timed=desk.case(chosen[-1]), rounds=rounds(desk.device, quick=quick))


def rounds(device: Device, *, quick: bool) -> Plan:
    """Of timing."""
    return QUICK if quick else THOROUGH[device]


def variants(desk: ReferenceDesk, only: str | None = None) -> list[str]:
    """Names in the order in which they are tried; the last one is timed."""
    known = list(desk.module.variants)
    if only is not None:
        if only not in known:
            raise UserError(f"{desk.problem.id} has no variant `{only}`; it has {', '.join(known)}")
        return [only]
    largest = CPU if desk.device is Device.CPU and CPU in known else FULL
    others = [name for name in known if name not in (FULL, CPU)]
    return [*sorted(others, key=lambda name: name != SMALL), largest]
