"""Are random outputs distributed as the reference's? Asked in the mode in which a reference draws random numbers.

Both run under many seeds, and what is compared are figures of a whole output: how much of the reference's mean it has,
how far it is from that, how much it changes from seed to seed, and how much of a change neighbours along a dimension
share. That tells a dropout that is left out, that never changes, that has another probability or scale, or one mask for
a whole row. It is no proof that two distributions are the same.
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.models import Diagnosis
from grader.stages.candidate import MODEL, Candidate, exports, output_specs
from grader.stages.cases import Case
from grader.stages.evaluating import evaluate
from grader.stages.outcome import diagnose
from grader.stages.passes import reals
from grader.stages.reference import ReferenceDesk

RUNS, RUNS_OF_LARGE = 64, 16
"""Each of another seed."""
LARGE = 1 << 20
"""Elements of all outputs."""
DEVIATIONS = 5.0
"""Standard errors between two means of such figures, twice in a row: in fewer than one in 10^8 gradings by chance."""
ROUNDING = 1e-4
"""Of an output's RMS: what changes by less may do so by rounding."""
SLIGHT = 1e-2
"""Figures without a unit that differ by less say nothing, as where only rounding tells two elements' changes apart."""
MAX_ELEMENTS = 1 << 20
"""Of an output; its first ones stand for all."""

TINY = 1e-300

LEVEL = "its projection on the reference's mean"
SPREAD = "its distance from the reference's mean, in units of the usual one,"
CHANGE = "its change from one seed to the next"
SHARED = "what elements along dimension {} have in common in a change"

Outputs = Mapping[str, torch.Tensor]
Figures = Mapping[str, list[float]]
"""By what they say of one output; a list has one for every run."""


class _Usual(NamedTuple):
    """Of the reference's output, over some runs."""

    mean: torch.Tensor
    away: torch.Tensor
    """The mean distance from that."""
    seen: torch.Tensor
    """1 where that is more than rounding, falling to 0."""

    @property
    def size(self) -> float:
        return float(self.mean.norm() + self.away.norm())


def judge_distribution(candidate: Candidate, desk: ReferenceDesk, case: Case) -> tuple[str, Diagnosis] | None:
    """An output that is distributed otherwise, twice under fresh seeds, and what shows it. Raises Stopped."""
    count = RUNS if sum(of.golden.numel() for of in case.outputs.values()) <= LARGE else RUNS_OF_LARGE
    reference, submission = partial(_of_reference, desk, case), partial(_of_candidate, candidate, case)
    usual = desk.remember(("usual outputs", case.seed), partial(_usual, reference, count))
    found = None
    for turn in range(2):
        theirs = desk.remember(("random outputs", case.seed, turn), partial(_figures, reference, count, usual))
        found = _difference(_figures(submission, count, usual), theirs, usual)
        if found is None:
            return None
    assert found is not None
    output, message = found
    message = f"{output} is distributed otherwise than the reference's ({count} seeds each): {message}"
    return output, diagnose("output_distribution", f"{message} (variant {case.name})")


def _difference(
    ours: Mapping[str, Figures], theirs: Mapping[str, Figures], usual: Mapping[str, _Usual]
) -> tuple[str, str] | None:
    """The first output whose figures differ, and how."""
    for name, due in theirs.items():
        least = ROUNDING * usual[name].size
        for what, wanted in due.items():
            had = ours[name][what]
            found, expected = statistics.fmean(had), statistics.fmean(wanted)
            error = math.sqrt((statistics.variance(had) + statistics.variance(wanted)) / len(wanted))
            if abs(found - expected) <= DEVIATIONS * error + (least if what in (LEVEL, CHANGE) else SLIGHT):
                continue
            remedy = "check the probability, the scale, and which elements share a random number"
            if statistics.fmean(ours[name][CHANGE]) <= least:
                remedy = "draw random numbers as the reference does, new ones in every forward"
            return name, f"{what} is {found:.4g} on the average where the reference has {expected:.4g}: {remedy}"
    return None


def _of_reference(desk: ReferenceDesk, case: Case) -> Outputs:
    """One run under a new seed."""
    traits, seed = desk.traits(case), secrets.randbits(62)
    run = evaluate(desk, MODEL, traits, case.inputs, case.state, {}, (), case.training, seed=seed)
    return {name: _first_reals(run.outputs[name]) for name in case.outputs}


def _of_candidate(candidate: Candidate, case: Case) -> Outputs:
    script = candidate.script(case)
    script.put_inputs("a", case.inputs)
    script.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training, seed=secrets.randbits(62)))
    script.export(exports("output", "a", output_specs(case)))
    script.step(p.Drop())
    sealed = candidate.run(script, "forward", f"forward of variant {case.name} under another seed").sealed
    found = {}
    for name, of in case.outputs.items():
        nothing = torch.full(of.shape, math.nan, device=candidate.device.value)
        found[name] = _first_reals(sealed.get(f"output:a:{name}", nothing).view(of.shape))
    return found


def _usual(run: Callable[[], Outputs], count: int) -> dict[str, _Usual]:
    means = _mean(run, count)

    def away() -> Outputs:
        return {name: (value - means[name]).abs() for name, value in run().items()}

    found = {}
    for name, usually in _mean(away, count).items():
        rms = float((means[name].square() + usually.square()).mean().sqrt()) if usually.numel() else 0.0
        found[name] = _Usual(means[name], usually, usually.square() / (usually.square() + (ROUNDING * rms) ** 2 + TINY))
    return found


def _mean(run: Callable[[], Outputs], count: int) -> Outputs:
    total = run()
    for _ in range(count - 1):
        more = run()
        total = {name: value + more[name] for name, value in total.items()}
    return {name: value / count for name, value in total.items()}


def _figures(run: Callable[[], Outputs], count: int, usual: Mapping[str, _Usual]) -> dict[str, dict[str, list[float]]]:
    """Of so many runs, by output."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in usual}
    before = run()
    for _ in range(count):
        now = run()
        for name, of in usual.items():
            for what, figure in _of_run(now[name], before[name], of):
                found[name].setdefault(what, []).append(figure)
        before = now
    return found


def _of_run(now: torch.Tensor, before: torch.Tensor, usual: _Usual) -> Iterable[tuple[str, float]]:
    away = usual.seen * (now - usual.mean).abs() / (usual.away + TINY)
    yield LEVEL, float((now * usual.mean).sum() / (usual.mean.norm() + TINY))
    yield SPREAD, float(away.sum() / (usual.seen.sum() + TINY))
    yield CHANGE, float((now - before).norm())
    unusual = away - usual.seen
    size, rounding = unusual.norm(), ROUNDING * usual.seen.norm()
    visible = size / (size.square() + rounding.square() + TINY)  # 1 / size, but for what rounding alone makes unusual
    for dimension in range(unusual.dim()):
        yield SHARED.format(dimension), float(unusual.sum(dimension).norm() * visible)


def _first_reals(value: torch.Tensor) -> torch.Tensor:
    """The first elements in float64, a complex number as two; 0 for what is not finite."""
    for dimension in range(value.dim()):
        rest = max(value.numel() // max(value.shape[dimension], 1), 1)
        value = value.narrow(dimension, 0, min(value.shape[dimension], max(MAX_ELEMENTS // rest, 1)))
    return reals(value).nan_to_num(0.0, 0.0, 0.0)
