"""Are random outputs distributed as the reference's? Asked in the mode in which a reference draws random numbers.

Both run many times, and what is compared are figures of a whole output, or of a buffer after a forward: how much of the
reference's mean it has, how far it is from that, how much it changes from run to run, how much of a change neighbours
along a dimension share, whether an earlier one comes again, and how many of the elements that are never random are off.
That tells a dropout that is left out, that never changes, that has another probability or scale, or one mask for a
whole row. It is no proof that two distributions are the same.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch

from grader.grading.candidate import Candidate
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.random.runs import Part, Runs, random_parts, runs
from grader.machine.cpu_threads import on_one_thread
from grader.verdict.models import Diagnosis, TimeLimits

RUNS, RUNS_OF_LARGE = 64, 16
LARGE = 1 << 18
"""Elements of all outputs."""
DEVIATIONS = 5.0
"""Standard errors between two means of such figures, twice in a row: in fewer than one in 10^8 gradings by chance."""
ROUNDING = 1e-4
"""Of an output's RMS: what changes by less may do so by rounding."""
SLIGHT = 1e-2
"""Figures without a unit that differ by less say nothing, as where only rounding tells two elements' changes apart."""
STILL = 1e-6
"""Of an output's RMS: who never changes by more than that is not random."""
OFF = 1e-3
"""Relative error from which such an element is off."""
OFTEN = 0.1
"""Who repeats an earlier output so much more often does so by a mask that is kept."""
TINY = 1e-300

LEVEL = "its projection on the reference's mean"
SPREAD = "its distance from the reference's mean, in units of the usual one,"
CHANGE = "its change from one forward to the next"
SHARED = "what elements along dimension {} have in common in a change"
FIXED = "the share of elements that are off among those that are never random"
AGAIN = "how often an earlier output comes again"
ODD = "how often it has NaN or infinity"

Figures = Mapping[str, list[float]]
"""By what they say of one output; a list has one for every run."""


class _Usual(NamedTuple):
    """Of the reference's output, over some runs."""

    mean: torch.Tensor
    away: torch.Tensor
    """The mean distance from that."""
    seen: torch.Tensor
    """1 where that is more than rounding, falling to 0."""
    fixed: torch.Tensor
    """1 where it is always the same."""
    finite: bool
    """All of it was, in all runs."""

    @property
    def size(self) -> float:
        return float(self.mean.norm() + self.away.norm())


def judge_distribution(candidate: Candidate, oracle: Oracle, case: Case) -> tuple[str, Diagnosis] | None:
    """An output that is distributed otherwise, twice in other runs, and what shows it. Raises Stopped.

    Without gradients and, where outputs are few, with gradients enabled too.
    """
    if not random_parts(case):
        return None
    small = sum(of.reference64.numel() for of in case.outputs.values()) <= LARGE
    with on_one_thread():
        for grad in (False, True) if small and case.wrt else (False,):
            found = _judge(candidate, oracle, case, RUNS if small else RUNS_OF_LARGE, grad)
            if found is not None:
                return found
    return None


def _judge(candidate: Candidate, oracle: Oracle, case: Case, count: int, grad: bool) -> tuple[str, Diagnosis] | None:
    where = f"{', with gradients enabled' if grad else ''} (variant {case.name})"
    usual = oracle.remember(("usual outputs", case.seed, grad), lambda: _usual(oracle, case, count, grad))
    found = None
    for turn in range(2):
        theirs = oracle.remember(
            ("random outputs", case.seed, grad, turn), partial(_of_reference, oracle, case, count, grad, usual)
        )
        ours = _figures(islice(runs(candidate, case, grad=grad), 1 + count), usual)
        odd = next((part for part, of in usual.items() if of.finite and any(ours[part][ODD])), None)
        if odd is not None:
            message = f"{odd.label} has NaN or infinity where the reference never has{where}"
            return odd.name, diagnose("output_nan", message)
        found = _difference(ours, theirs, usual)
        if found is None:
            return None
    assert found is not None
    part, message = found
    message = f"{part.label} is distributed otherwise than the reference's ({count} runs each): {message}{where}"
    return part.name, diagnose("output_distribution", message)


def _difference(
    ours: Mapping[Part, Figures], theirs: Mapping[Part, Figures], usual: Mapping[Part, _Usual]
) -> tuple[Part, str] | None:
    """The first output whose figures differ, and how."""
    for part, due in theirs.items():
        least = ROUNDING * usual[part].size
        for what, wanted in due.items():
            had = ours[part][what]
            found, expected = statistics.fmean(had), statistics.fmean(wanted)
            error = math.sqrt((statistics.variance(had) + statistics.variance(wanted)) / len(wanted))
            if abs(found - expected) <= DEVIATIONS * error + (least if what in (LEVEL, CHANGE) else SLIGHT):
                continue
            remedy = "check the probability, the scale, and which elements share a random number"
            if what == FIXED:
                remedy = "nothing random is in those"
            elif statistics.fmean(ours[part][AGAIN]) > statistics.fmean(due[AGAIN]) + OFTEN:
                remedy = "draw random numbers as the reference does, new ones in every forward"
            return part, f"{what} is {found:.4g} on the average where the reference has {expected:.4g}: {remedy}"
    return None


@contextmanager
def _reference_runs(oracle: Oracle, case: Case, grad: bool) -> Iterator[Iterator[Runs]]:
    """Of the reference, asked as a submission is."""
    with oracle.lent() as worker:
        yield runs(Candidate(worker, oracle.device, TimeLimits()), case, grad=grad)


def _of_reference(
    oracle: Oracle, case: Case, count: int, grad: bool, usual: Mapping[Part, _Usual]
) -> Mapping[Part, Figures]:
    with _reference_runs(oracle, case, grad) as told:
        return _figures(islice(told, 1 + count), usual)


def _usual(oracle: Oracle, case: Case, count: int, grad: bool) -> dict[Part, _Usual]:
    with _reference_runs(oracle, case, grad) as told:
        means, finite = _mean(islice(told, count), lambda _, value: value)
        aways, finite_too = _mean(islice(told, count), lambda part, value: (value - means[part]).abs())
    found = {}
    for part, away in aways.items():
        mean = means[part]
        rms = float((mean.square() + away.square()).mean().sqrt()) if away.numel() else 0.0
        seen = away.square() / (away.square() + (ROUNDING * rms) ** 2 + TINY)
        found[part] = _Usual(mean, away, seen, (away <= STILL * rms).to(mean), part in finite & finite_too)
    return found


def _mean(
    told: Iterable[Runs], of: Callable[[Part, torch.Tensor], torch.Tensor]
) -> tuple[dict[Part, torch.Tensor], set[Part]]:
    """By part, and the parts that are finite in all runs."""
    totals: dict[Part, torch.Tensor] = {}
    finite: set[Part] = set()
    number = 0
    for number, run in enumerate(told, 1):
        if number == 1:
            finite.update(run)
        finite -= {part for part, value in run.items() if not _finite(value)}
        for part, value in run.items():
            term = of(part, _numbers(value))
            totals[part] = totals[part] + term if part in totals else term
    return {part: total / number for part, total in totals.items()}, finite


def _figures(told: Iterable[Runs], usual: Mapping[Part, _Usual]) -> dict[Part, dict[str, list[float]]]:
    """Of all runs but the first, by output."""
    found: dict[Part, dict[str, list[float]]] = {part: {} for part in usual}
    seen: dict[Part, set[int]] = {part: set() for part in usual}
    before: Runs | None = None
    for now in told:
        for part, of in usual.items():
            mark = hash(now[part].cpu().numpy().tobytes())
            if before is not None:
                figures = _of_run(_numbers(now[part]), _numbers(before[part]), of)
                counts = (AGAIN, float(mark in seen[part])), (ODD, float(not _finite(now[part])))
                for what, figure in (*counts, *figures):
                    found[part].setdefault(what, []).append(figure)
            seen[part].add(mark)
        before = now
    return found


def _of_run(now: torch.Tensor, before: torch.Tensor, usual: _Usual) -> Iterable[tuple[str, float]]:
    apart = (now - usual.mean).abs()
    away = usual.seen * apart / (usual.away + TINY)
    rms = usual.mean.norm() / math.sqrt(max(usual.mean.numel(), 1))
    off = usual.fixed * (apart > OFF * (usual.mean.abs() + rms))
    yield FIXED, float(off.sum() / (usual.fixed.sum() + TINY))
    yield LEVEL, float((now * usual.mean).sum() / (usual.mean.norm() + TINY))
    yield SPREAD, float(away.sum() / (usual.seen.sum() + TINY))
    yield CHANGE, float((now - before).norm())
    unusual = away - usual.seen
    size, rounding = unusual.norm(), ROUNDING * usual.seen.norm()
    visible = size / (size.square() + rounding.square() + TINY)  # 1 / size, but for what rounding alone makes unusual
    for dimension in range(unusual.dim()):
        yield SHARED.format(dimension), float(unusual.sum(dimension).norm() * visible)


def _numbers(value: torch.Tensor) -> torch.Tensor:
    """0 for what is not finite."""
    return value.nan_to_num(0.0, 0.0, 0.0)


def _finite(value: torch.Tensor) -> bool:
    return bool(value.isfinite().all())
