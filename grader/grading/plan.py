"""Decides which cases a submission is compared on, by what the device and the time allow.

All variants are compared, but those for the other kind of device; the largest comes last, and is timed. Probes and
experiments run on the first: for a problem with one large size on a variant with fewer rows (`oracle/fewer_rows.py`),
unless the submission fails there. Where the device's memory is too short, less is asked of the largest, by scope:

- `EVERYTHING`: nothing is left out;
- `ESSENTIAL`: no float64 run and, if it is the only size, no probes and experiments;
- `half` and `quarter`: the same on as many of the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

import torch

from grader.catalog.problem_module import FULL
from grader.errors import ProblemError, UserError
from grader.grading.backward.experiments import ExperimentCases
from grader.grading.compare.blocks import HUGE_BYTES
from grader.grading.messages import diagnose
from grader.grading.oracle import capabilities, variations
from grader.grading.oracle.capabilities import outputs_may_change
from grader.grading.oracle.case import Case, CaseKey
from grader.grading.oracle.each_output import through_each_output
from grader.grading.oracle.fewer_rows import PARTS, ROWS, WHOLE
from grader.grading.oracle.oracle import Oracle
from grader.grading.timing.stopping import QUICK, RoundLimits, thorough
from grader.machine.backends import backend
from grader.verdict.models import Diagnosis

CPU = "cpu"
"""The variant that stands for full sizes on the CPU board."""
SMALL = "small"
ALWAYS_RANDOM = "draws random numbers in train() and in eval(), so that no value can be compared"
DRAWS = 2
"""Draws of the small and the odd sizes in a thorough grading."""
LARGE_CASE_BYTES = 512 << 20
"""On a host, a case that takes so many bytes with its parameters and buffers has one draw and no probes. Where these
alone do, the variant with fewer rows would save nothing."""

Scope = Literal["everything", "essential", "half", "quarter"]
EVERYTHING: Scope = "everything"
ESSENTIAL: Scope = "essential"
SCOPES: tuple[Scope, ...] = (EVERYTHING, ESSENTIAL, "half", "quarter")
"""From the most to the least that is asked."""


@dataclass(frozen=True)
class Todo:
    """The checks of one grading."""

    cases: tuple[Case, ...]
    """Small sizes first, so that a fault shows quickly. In eval() too, even if that is the same to the reference."""
    probed: tuple[Case, ...]
    """Cases of the forward's probes: the first size, in both modes; one case for both if the reference does the same in
    both."""
    experiments: tuple[ExperimentCases, ...]
    """Cases of the backward's experiments, likewise; none if there is nothing to differentiate."""
    noise: tuple[Case, ...]
    """Cases whose gradients rounding decides."""
    timed: Case
    rounds: RoundLimits
    notes: tuple[Diagnosis, ...] = ()
    """Checks that are left out, and why."""

    def without(self, sizes: Collection[str]) -> Todo:
        """The same without the cases of some sizes."""
        cases, noise = (tuple(case for case in kept if case.variant not in sizes) for kept in (self.cases, self.noise))
        return replace(self, cases=cases, noise=noise)

    @property
    def other_sizes(self) -> tuple[Case, ...]:
        """A case in train() of each size that is not timed."""
        by_variant = {case.variant: case for case in reversed(self.cases) if case.training}
        return tuple(case for name, case in reversed(by_variant.items()) if name != self.timed.variant)

    @property
    def differentiated(self) -> tuple[Case, ...]:
        """The cases in which the reference can be differentiated."""
        return tuple(case for case in self.cases if case.wrt)


def make(
    oracle: Oracle,
    *,
    variant: str | None,
    quick: bool,
    scope: Scope = EVERYTHING,
    fewer_rows: bool = True,
    sparing: bool = False,
    precise: bool = False,
) -> Todo:
    """The plan for one submission, with its cases made. Raises UserError, ProblemError.

    Without `fewer_rows`, the variant with fewer rows is left out. With `sparing`, the reference keeps as little of the
    device's memory as with fewer checks; with `precise`, it may run in float64 at full size for as long as a grading
    should take. UserError for an unknown variant, ProblemError for a problem that cannot be graded on this device.
    """
    oracle.costs.spares_memory, oracle.costs.waits_for_float64 = sparing or scope != EVERYTHING, precise
    if precise:
        for size in WHOLE:
            oracle.cases.forget(size)
    chosen = _sizes(oracle, variant, scope, fewer_rows)
    asks_more = scope == EVERYTHING or len(chosen) > 1
    cases = _cases(oracle, chosen, quick=quick, asks_more=asks_more)
    if not all(case.returns_tensor for case in cases):
        raise ProblemError(f"{oracle.problem.path}: the reference returns no tensor, so that anything would be right")
    if not any(case.values_comparable for case in cases[:2]):
        raise ProblemError(f"{oracle.problem.path}: the reference {ALWAYS_RANDOM}; have eval() draw none")
    probes = asks_more and not is_large_case(oracle, cases[0])
    differentiates = asks_more and any(case.wrt for case in cases[:2])
    return Todo(
        cases=tuple(cases),
        probed=_probed(oracle, cases) if probes else (),
        experiments=_experiments(oracle, chosen[0]) if differentiates else (),
        noise=tuple(
            case
            for key, case in oracle.cases.not_compared.noise.items()
            if key in {(planned.variant, planned.training) for planned in cases}
        ),
        timed=oracle.case(chosen[-1]),
        rounds=replace(QUICK if quick else thorough(oracle.device), seconds=oracle.budget.stage_seconds),
        notes=(*_notes(oracle, cases, asks_more, fewer_rows), *(_trivial(oracle, cases) if probes else ())),
    )


def variants(oracle: Oracle, only: str | None = None) -> list[str]:
    """Names of variants in the order of comparison; the last one is timed. Raises UserError."""
    known = [name for name in oracle.models.module.variants if name not in PARTS]
    if only is not None:
        own = [name for name in known if name != ROWS]
        if only not in own:
            raise UserError(f"{oracle.problem.id} has no variant `{only}`; it has {', '.join(own)}")
        return [only]
    largest = wanted if (wanted := backend(oracle.device).full_size_variant) in known else FULL
    others = [name for name in known if name not in (FULL, CPU)]
    return [*sorted(others, key=lambda name: name != SMALL), largest]


def _sizes(oracle: Oracle, variant: str | None, scope: Scope, fewer_rows: bool) -> list[str]:
    chosen = variants(oracle, variant)
    if ROWS in chosen and not (fewer_rows and oracle.case(ROWS).state_bytes <= LARGE_CASE_BYTES):
        oracle.cases.forget(ROWS)
        chosen.remove(ROWS)
    return [*chosen[:-1], scope] if scope in oracle.models.module.variants else chosen


def _cases(oracle: Oracle, chosen: Sequence[str], *, quick: bool, asks_more: bool) -> list[Case]:
    cases = []
    for name in chosen:
        cases.append(oracle.case(name))
        if not quick and name not in (*WHOLE, CPU) and not oracle.is_slow(cases[-1]):
            cases += [oracle.case(name, draw=draw) for draw in range(1, DRAWS)]
    if asks_more or not cases[0].values_comparable:
        cases.insert(1, _case(oracle, chosen[0], training=False))
    return cases


def _probed(oracle: Oracle, cases: Sequence[Case]) -> tuple[Case, ...]:
    """The first size in both modes."""
    if oracle.models.modes_differ(cases[0].variant):
        return tuple(cases[:2])
    return (cases[0].alike(also_in_eval=True),)


def _experiments(oracle: Oracle, name: str) -> tuple[ExperimentCases, ...]:
    in_train, in_eval = (_experiment_cases(oracle, name, training=mode) for mode in (True, False))
    if oracle.models.modes_differ(name):
        return tuple(one for one in (in_train, in_eval) if one.first.wrt)
    return (replace(in_train, eval_cases=in_eval if in_eval.first.wrt else None),)


def _case(oracle: Oracle, name: str, *, training: bool, draw: int = 0) -> Case:
    """A case; in eval() the same as in train() if the reference does not distinguish the modes."""
    differ = not training and oracle.models.modes_differ(name)
    case = oracle.case(name, training=not differ, draw=draw)
    if training or differ:
        return case
    return case.as_eval() if capabilities.differentiates_in_eval(oracle, case) else case.as_eval().without_gradients()


def _experiment_cases(oracle: Oracle, name: str, *, training: bool) -> ExperimentCases:
    first = _case(oracle, name, training=training)
    kept = first if oracle.models.modes_differ(name) else oracle.case(name).alike(also_in_eval=True)
    second = cache(partial(_second, oracle, first))
    return ExperimentCases(
        first=first,
        second=second,
        others=lambda: oracle.models.draw(name)[1] if second() is first else first.inputs,
        keeps_outputs=capabilities.keeps_outputs(oracle, kept),
        seconds=oracle.budget.experiment_seconds,
        outputs_may_change=partial(outputs_may_change, oracle),
        alone=partial(through_each_output, oracle),
    )


def _second(oracle: Oracle, first: Case) -> Case:
    """Another draw; the first again if it is large, or slow and no probe of the forward had another one made."""
    mode = first.training or not oracle.models.modes_differ(first.variant)
    made = CaseKey(first.variant, mode, 1) in oracle.cases.made
    if is_large_case(oracle, first) or (oracle.is_slow(first) and not made):
        return first
    return _case(oracle, first.variant, training=first.training, draw=1)


def is_large_case(oracle: Oracle, case: Case) -> bool:
    """Whether further draws of the case would take too much memory, and each run of it too much time."""
    most = HUGE_BYTES if backend(oracle.device).own_memory else LARGE_CASE_BYTES
    return case.nbytes + case.state_bytes > most


def _trivial(oracle: Oracle, cases: Sequence[Case]) -> Sequence[Diagnosis]:
    """A warning if outputs pass that do not depend on the inputs."""
    case = next(case for case in cases if case.values_comparable)
    found = variations.trivial_outputs(oracle, case)
    remedy = "have the problem's outputs vary with its inputs"
    return () if found is None else (diagnose("trivial_outputs", found, where=case.where, remedy=remedy),)


def _notes(oracle: Oracle, cases: Sequence[Case], asks_more: bool, fewer_rows: bool) -> tuple[Diagnosis, ...]:
    """Information on what is not asked."""
    texts = []
    size = "full size" if cases[-1].variant not in PARTS else f"a {cases[-1].variant} of the rows"
    if not asks_more or cases[-1].variant in PARTS:
        most = size if asks_more else f"a forward, a backward and timed calls of {size}"
        texts.append(f"the device's memory is too short for more than {most}")
    if cases[0].variant == ROWS:
        rows = next(value.shape[0] for value in cases[0].inputs if isinstance(value, torch.Tensor) and value.dim())
        compared = "" if oracle.exact_seconds(cases[-1]) else ", against a float32 run of the reference"
        texts.append(
            f"the inputs are large: the plain forward and backward and the timed calls were checked at {size}"
            f"{compared}, and everything else on the first {rows} rows"
        )
    elif oracle.models.has_fewer_rows and asks_more and not fewer_rows:
        texts.append("the submission failed with fewer rows, so the checks ran at full size")
    if asks_more and is_large_case(oracle, cases[0]):
        texts.append("the first size with its parameters is large: it has one draw, without the probes of the forward")
    if asks_more and not is_large_case(oracle, cases[0]) and oracle.is_slow(cases[0]):
        seconds = oracle.costs.seconds_of(cases[0])
        texts.append(
            f"a forward and backward of the reference take {seconds:.2g} s, so that each size has one draw, and its "
            "baseline error one perturbed run"
        )
    for case in cases:
        none = oracle.cases.not_compared.why.get((case.variant, case.training))
        if none is not None:
            mode = "train()" if case.training else "eval()"
            elsewhere = any(other.wrt and other.training is case.training for other in cases)
            at = f" at {size}, so nothing else is there" if elsewhere else ", so nothing else is"
            if none.is_noise:
                texts.append(f"of gradients in {mode}, existence and linearity were checked, no values: {none.reason}")
            else:
                texts.append(f"the reference cannot be differentiated in {mode}{at}: {none.reason}")
    return tuple(diagnose("checks_left_out", text, severity="info") for text in dict.fromkeys(texts))
