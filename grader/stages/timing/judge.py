"""The timing stage: ABBA rounds over two workers, on inputs that nobody has seen, outputs sealed and compared."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.models import Diagnosis, PhaseTiming, StageStatus, Status, TimingResult
from grader.stages.candidate import Candidate
from grader.stages.cases import Case
from grader.stages.outcome import diagnose
from grader.stages.reference import ReferenceDesk
from grader.stages.timing.arms import Arms
from grader.stages.timing.call import FIGURES, Part, Phase
from grader.stages.timing.clocks import Samples, Time, timing_of
from grader.stages.timing.device_clocks import ClockWatch, DeviceClocks
from grader.stages.timing.statistics import PRECISIONS, speedup

LEAST_KEPT = 3
"""Rounds, however late it is; too few to call a difference, and so `inconclusive`."""
CALLS_MS = 4.0
MAX_CALLS = 16
"""Calls are repeated in one sample until they take CALLS_MS, so that overheads even out."""


@dataclass(frozen=True)
class Plan:
    """How long to go on."""

    min_rounds: int
    max_rounds: int
    seconds: float


QUICK = Plan(min_rounds=6, max_rounds=8, seconds=4.0)
THOROUGH = Plan(min_rounds=7, max_rounds=25, seconds=20.0)


@dataclass(frozen=True)
class TimingJudgement:
    result: TimingResult
    diagnoses: tuple[Diagnosis, ...]
    """Of severity error when a timed output was wrong."""

    @property
    def status(self) -> Status:
        """What a failed timing stage makes of the verdict."""
        return Status.WRONG_OUTPUT if self.result.status is StageStatus.FAILED else Status.CORRECT


def judge_timing(
    candidate: Candidate, desk: ReferenceDesk, case: Case, plan: Plan, *, training: bool = True, tf32: bool = True
) -> TimingJudgement:
    """Time one variant; without `training` the forward alone, with `tf32` as PyTorch ships. Raises Stopped."""
    if not case.values_comparable:
        message = "the reference draws random numbers: what cannot be compared is not timed"
        told = diagnose("not_comparable", message, stage="timing", severity="info")
        return TimingJudgement(TimingResult(status=StageStatus.SKIPPED, variant=case.variant), (told,))
    arms = Arms(candidate, desk, case, tf32=tf32)
    phases: tuple[Phase, ...] = ("inference", "training") if training and case.wrt else ("inference",)
    calls = dict.fromkeys(phases, 1)
    for phase in phases:  # warm up: lazy initialisation and autotuning stay out of the samples
        for _ in range(2):
            reference, _, wrong = arms.pair(phase, random.random() < 0.5, 1)
            if wrong is not None:
                return _failed(case, wrong)
        calls[phase] = repeats(sum(part.claim for part in reference.values()))
    samples = {name: Samples() for name in ("forward", "backward", "total")}
    started, watch = time.monotonic(), ClockWatch(DeviceClocks.of(desk.device))
    count, goal = 0, PRECISIONS[desk.device].half_width
    while count < plan.max_rounds:
        made: dict[str, tuple[tuple[Time, Time], tuple[Time, Time]]] = {}
        for phase in phases:
            reference_first = random.random() < 0.5
            pairs = []
            for first in (reference_first, not reference_first):
                reference, timed, wrong = arms.pair(phase, first, calls[phase])
                if wrong is not None:
                    return _failed(case, wrong)
                pairs.append((reference, timed))
                watch.look()
            for name, parts in FIGURES[phase].items():
                first_pair, second_pair = [(_sum(r, parts), _sum(c, parts)) for r, c in pairs]
                made[name] = first_pair, second_pair
        late = time.monotonic() - started > plan.seconds
        if not watch.counts():
            if late and count >= LEAST_KEPT:
                break
            continue
        count += 1
        for name, of_round in made.items():
            samples[name].rounds.append(of_round)
        ranking = samples["total" if "training" in phases else "forward"].claims()
        enough = count >= plan.min_rounds and speedup(ranking).half_width <= goal
        if enough or (late and count >= LEAST_KEPT):
            break
    timings: dict[str, PhaseTiming] = {}
    diagnoses = []
    for name, of in samples.items():
        if of.rounds:
            timings[name], disputed = timing_of(of, desk.device)
            if disputed:
                diagnoses.append(_disagreement(name, timings[name]))
    result = TimingResult(
        status=StageStatus.PASSED,
        variant=case.variant,
        forward=timings.get("forward"),
        backward=timings.get("backward"),
        total=timings.get("total"),
        clocks=tuple(watch.readings),
    )
    return TimingJudgement(result, (*diagnoses[:1], *watch.diagnoses()))


def _failed(case: Case, wrong: Diagnosis) -> TimingJudgement:
    return TimingJudgement(TimingResult(status=StageStatus.FAILED, variant=case.variant), (wrong,))


def repeats(call_ms: float) -> int:
    """Calls in one sample."""
    return max(1, min(MAX_CALLS, math.ceil(CALLS_MS / max(call_ms, 1e-6))))


def _sum(times: Mapping[Part, Time], parts: Sequence[Part]) -> Time:
    total = times[parts[0]]
    for part in parts[1:]:
        total += times[part]
    return total


def _disagreement(name: str, timing: PhaseTiming) -> Diagnosis:
    return diagnose(
        "clock_disagreement",
        f"the {name} time claimed inside the sandbox is shorter than the referee's clock allows; "
        f"ranked by the referee's {timing.candidate_ms:.3g} ms",
        severity="warning",
    )
