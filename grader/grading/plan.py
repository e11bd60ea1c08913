"""Which cases a submission is put to: sizes, modes and draws, by device and by how thorough the grading is to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from grader.catalog.problem_module import FULL
from grader.errors import ProblemError, UserError
from grader.grading.backward.experiments import Cases
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.fewer_rows import ROWS
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.timing.rounds import QUICK, THOROUGH, Plan
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis, Submission

CPU = "cpu"
"""The variant that stands for full sizes on the CPU board."""
SMALL = "small"
ALWAYS_RANDOM = "draws random numbers in train() and in eval(), so that no value can be compared"
DRAWS = 2
"""Of the small and the odd sizes, in a thorough grading."""


LARGE_CASE_BYTES = 512 << 20
"""Of the first case, its parameters and buffers: from this size on there is one draw, and no probes."""


@dataclass(frozen=True)
class Todo:
    cases: tuple[Case, ...]
    """Small sizes first, so that a fault shows quickly; in eval() too, even where that is the same to the reference."""
    probed: tuple[Case, ...]
    """For the forward's probes: the first size, in eval() too of a submission that may tell the modes apart, and where
    the reference draws random numbers in train()."""
    traps: tuple[Cases, ...]
    """For the backward's experiments, likewise; none where the problem has nothing to differentiate."""
    timed: Case
    rounds: Plan
    notes: tuple[Diagnosis, ...] = ()
    """What is left out at this size, and why."""

    @property
    def differentiated(self) -> tuple[Case, ...]:
        """The cases in which the reference can be differentiated."""
        return tuple(case for case in self.cases if case.wrt)


def make(oracle: Oracle, *, variant: str | None, quick: bool, tells_modes_apart: bool = False) -> Todo:
    """Raises UserError for an unknown variant, ProblemError for a problem that cannot be graded on this device."""
    chosen = variants(oracle, variant)
    if ROWS in chosen and oracle.state_bytes(oracle.case(ROWS)) > LARGE_CASE_BYTES:
        oracle.forget(ROWS)
        chosen.remove(ROWS)
    first = chosen[0]
    cases = []
    for name in chosen:
        thorough = not quick and name not in (FULL, CPU)
        cases += [oracle.case(name, draw=draw) for draw in range(DRAWS if thorough else 1)]
    cases.insert(1, _case(oracle, first, training=False))
    if not all(case.outputs for case in cases):
        raise ProblemError(f"{oracle.problem.path}: the reference returns no tensor, so that anything would be right")
    if not any(case.values_comparable for case in cases[:2]):
        raise ProblemError(f"{oracle.problem.path}: the reference {ALWAYS_RANDOM}; have eval() draw none")
    modes = (True, False) if tells_modes_apart or not cases[0].values_comparable else (True,)
    return Todo(
        tuple(cases),
        probed=() if _is_large(oracle, cases[0]) else tuple(cases[: len(modes)]),
        traps=tuple(_traps(oracle, first, training=training) for training in modes) if cases[0].wrt else (),
        timed=oracle.case(chosen[-1]),
        rounds=rounds(oracle.device, quick=quick),
        notes=_notes(oracle, cases),
    )


def _notes(oracle: Oracle, cases: Sequence[Case]) -> tuple[Diagnosis, ...]:
    """Information on what this plan does not ask."""
    found = []
    if oracle.has_fewer_rows:
        what = (
            "the inputs are large: the plain forward, the backward and the timed calls were checked at full size, "
            f"everything else on the first {_rows(cases[0])} rows"
        )
        found.append(diagnose("checks_left_out", what, severity="info"))
    for case in cases:
        reason = oracle.no_backward.get((case.variant, case.training))
        if reason is not None:
            what = f"the reference cannot be differentiated, so the forward alone is graded: {reason}"
            found.append(diagnose("checks_left_out", what, where=f"variant {case.name}", severity="info"))
    return tuple(found)


def _rows(case: Case) -> int:
    return next(value.shape[0] for value in case.inputs if isinstance(value, torch.Tensor) and value.dim() > 0)


def may_tell_modes_apart(submission: Submission) -> bool:
    """It reads self.training, or replaces train() or eval(): what it does in the other mode may be another thing."""
    return "train" in submission.source or "eval" in submission.source


def _traps(oracle: Oracle, name: str, *, training: bool) -> Cases:
    first = _case(oracle, name, training=training)
    few = _is_large(oracle, first)
    return Cases(
        first=first,
        second=first if few else _case(oracle, name, training=training, draw=1),
        constant=first if few else _case(oracle, name, training=training, constant_cotangents=True),
        keeps_outputs=questions.keeps_outputs(oracle, first),
    )


def _is_large(oracle: Oracle, case: Case) -> bool:
    """Other draws of it would take too much of the device's memory, and every run of it too much time."""
    return case.nbytes + oracle.state_bytes(case) > LARGE_CASE_BYTES


def _case(oracle: Oracle, name: str, *, training: bool, draw: int = 0, constant_cotangents: bool = False) -> Case:
    """In eval() the same as in train() where the reference does not tell them apart."""
    differ = not training and oracle.remember(("modes differ", name), lambda: oracle.modes_differ(name))
    case = oracle.case(name, training=not differ, draw=draw, constant_cotangents=constant_cotangents)
    if training or differ:
        return case
    return case.in_eval() if oracle.differentiates_in_eval(case) else case.in_eval().without_gradients()


def rounds(device: Device, *, quick: bool) -> Plan:
    """Of timing."""
    return QUICK if quick else THOROUGH[device]


def variants(oracle: Oracle, only: str | None = None) -> list[str]:
    """Names in the order in which they are tried; the last one is timed."""
    known = list(oracle.module.variants)
    if only is not None:
        if only not in known:
            raise UserError(f"{oracle.problem.id} has no variant `{only}`; it has {', '.join(known)}")
        return [only]
    largest = wanted if (wanted := backend(oracle.device).full_size_variant) in known else FULL
    others = [name for name in known if name not in (FULL, CPU)]
    return [*sorted(others, key=lambda name: name != SMALL), largest]
