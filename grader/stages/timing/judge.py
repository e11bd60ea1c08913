"""The timing stage: ABBA rounds over two workers, on inputs that nobody has seen, outputs sealed and compared."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grader.models import Device, Diagnosis, PhaseTiming, StageStatus, Status, TimingResult
from grader.stages.candidate import Candidate
from grader.stages.cases import Case
from grader.stages.outcome import diagnose
from grader.stages.reference import ReferenceDesk
from grader.stages.timing.arms import Arms
from grader.stages.timing.call import FIGURES, Part, Phase
from grader.stages.timing.caller import NotQueued
from grader.stages.timing.clocks import Samples, Time, timing_of
from grader.stages.timing.device_clocks import ClockWatch, DeviceClocks
from grader.stages.timing.statistics import BEYOND_HOPE, HOPELESS, PRECISIONS, speedup

LEAST_KEPT = 3
"""Rounds, however late it is."""
MISSES = 2
"""Rounds in which a call could not be queued, until none is asked to."""
CALLS_MS = {Device.CPU: 4.0, Device.CUDA: 1.0}
MAX_CALLS = {Device.CPU: 16, Device.CUDA: 4}
"""Calls are repeated in one sample until they take CALLS_MS, so that what disturbs one evens out. On a GPU little
does, and another call costs more than it tells: several milliseconds, most of them not the call's."""


@dataclass(frozen=True)
class Plan:
    """How long to go on."""

    min_rounds: int
    max_rounds: int
    seconds: float
    gives_up: bool = False
    """One round is enough of whoever is HOPELESS: its calls are the ones that take a machine's time. Where that is far
    beyond, and stays so, its very first call counts too."""


QUICK = Plan(min_rounds=3, max_rounds=5, seconds=4.0, gives_up=True)
THOROUGH = Plan(min_rounds=7, max_rounds=25, seconds=20.0)


@dataclass(frozen=True)
class TimingJudgement:
    result: TimingResult
    diagnoses: tuple[Diagnosis, ...]
    """Of severity error when a timed output was wrong."""

    @property
    def status(self) -> Status:
        """What a failed timing stage makes of the verdict."""
        if self.result.status is not StageStatus.FAILED:
            return Status.CORRECT
        wrong = {diagnosis.code for diagnosis in self.diagnoses}
        return Status.WRONG_BACKWARD if "timed_gradient_wrong" in wrong else Status.WRONG_OUTPUT


def judge_timing(
    candidate: Candidate, desk: ReferenceDesk, case: Case, plan: Plan, *, training: bool = True, tf32: bool = True
) -> TimingJudgement:
    """Time one variant; without `training` the forward alone, with `tf32` as PyTorch ships. Raises Stopped."""
    if not case.values_comparable:
        message = "the reference draws random numbers: what cannot be compared is not timed"
        told = diagnose("not_comparable", message, stage="timing", severity="info")
        return TimingJudgement(TimingResult(status=StageStatus.SKIPPED, variant=case.variant), (told,))
    phases: tuple[Phase, ...] = ("inference", "training") if training and case.wrt else ("inference",)
    try:
        # A CPU's times are too noisy for one to speak for those that follow.
        known = desk.remember(("calls", case.variant, tf32), dict[Phase, int]) if desk.device is Device.CUDA else {}
        rounds = _Rounds(Arms(candidate, desk, case, tf32=tf32), phases, desk.device, known, plan)
        timings, disagreements, watch = _figures(rounds, plan, desk.device)
    except _WrongOutput as wrong:
        failed = TimingResult(status=StageStatus.FAILED, variant=case.variant)
        return TimingJudgement(failed, (wrong.diagnosis,))
    result = TimingResult(
        status=StageStatus.PASSED,
        variant=case.variant,
        forward=timings.get("forward"),
        backward=timings.get("backward"),
        total=timings.get("total"),
        clocks=tuple(watch.readings),
    )
    return TimingJudgement(result, (*disagreements[:1], *rounds.diagnoses(), *watch.diagnoses()))


class _WrongOutput(Exception):
    """A timed output was not what it should be."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.diagnosis = diagnosis


Pair = tuple[Mapping[Part, Time], Mapping[Part, Time]]
"""Times of (reference, candidate)."""
OfRound = tuple[tuple[Time, Time], tuple[Time, Time]]
"""One figure's two pairs of (reference, candidate)."""


class _Rounds:
    """ABBA rounds over all phases, warmed up. Making it and each round raise _WrongOutput and Stopped."""

    def __init__(
        self, arms: Arms, phases: Sequence[Phase], device: Device, known: dict[Phase, int], plan: Plan
    ) -> None:
        """`known` is filled with how often a call is repeated in one sample; it may know that from other candidates."""
        self._arms, self._phases = arms, phases
        self._calls = dict.fromkeys(phases, 1)
        self._first_calls: dict[Phase, tuple[bool, Mapping[Part, Time]]] = {}
        """Whether the reference was first, and the candidate's times, where they may count."""
        for phase in phases:  # lazy initialisation and autotuning stay out of the samples
            reference_first = random.random() < 0.5
            pair = self._pair(phase, reference_first)
            if plan.gives_up and known.get(phase) == 1 and _beyond_hope(pair):
                self._first_calls[phase] = reference_first, pair[1]
        arms.queues = True
        for phase in phases:
            if known.get(phase) != 1:  # of a long call, one is warm-up enough
                with contextlib.suppress(NotQueued):
                    reference, _ = self._pair(phase, random.random() < 0.5)
                    known[phase] = repeats(_total(reference), device)
            self._calls[phase] = known.get(phase, 1)

    def launch_in_the_open(self) -> None:
        """From now on, what launching takes is timed, on both sides."""
        self._arms.queues = False

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """That launches were timed."""
        if self._arms.queues:
            return ()
        message = (
            "a call waits for the GPU before all of it is queued: both sides are timed with what launching takes them"
        )
        return (diagnose("launches_timed", message, severity="info"),)

    def one(self, look: Callable[[], None]) -> dict[str, OfRound]:
        """By figure; `look` is called while the device is warm. Raises NotQueued too."""
        made: dict[str, OfRound] = {}
        self._arms.wake(self._phases[0])
        for phase in self._phases:
            reference_first, first_call = self._first_calls.pop(phase, (random.random() < 0.5, None))
            pairs = [self._pair(phase, not reference_first)]
            look()
            if first_call is not None and _beyond_hope(pairs[0]):
                pairs.append((pairs[0][0], first_call))
            else:
                pairs.append(self._pair(phase, reference_first))
                look()
            for name, parts in FIGURES[phase].items():
                first_pair, second_pair = [(_sum(r, parts), _sum(c, parts)) for r, c in pairs]
                made[name] = first_pair, second_pair
        return made

    def _pair(self, phase: Phase, reference_first: bool) -> Pair:
        reference, candidate, wrong = self._arms.pair(phase, reference_first, self._calls[phase])
        if wrong is not None:
            raise _WrongOutput(wrong)
        return reference, candidate


def _figures(rounds: _Rounds, plan: Plan, device: Device) -> tuple[dict[str, PhaseTiming], list[Diagnosis], ClockWatch]:
    """By name, with what is said of claims that the referee's clock contradicts: twice in a row, since what disturbs a
    machine may last for some rounds."""
    for _ in range(2):
        watch = ClockWatch(DeviceClocks.of(device))
        found = {name: timing_of(of) for name, of in _collect(rounds, watch, plan, device).items()}
        disagreements = [_disagreement(name, timing) for name, (timing, disputed) in found.items() if disputed]
        if not disagreements:
            break
    return {name: timing for name, (timing, _) in found.items()}, disagreements, watch


def _collect(rounds: _Rounds, watch: ClockWatch, plan: Plan, device: Device) -> dict[str, Samples]:
    """Samples by figure, until the ranking one is known well enough or the plan's end is reached."""
    samples: dict[str, Samples] = defaultdict(lambda: Samples(device))
    started, count, misses = time.monotonic(), 0, 0
    while count < plan.max_rounds:
        try:
            made = rounds.one(watch.look)
        except NotQueued:
            misses += 1
            if misses == MISSES:
                rounds.launch_in_the_open()
                samples.clear()
                count = 0
            continue
        late = time.monotonic() - started > plan.seconds
        enough = False
        if watch.counts():
            count += 1
            for name, of_round in made.items():
                samples[name].rounds.append(of_round)
            figures = speedup(samples["total" if "total" in made else "forward"].claims())
            enough = count >= plan.min_rounds and figures.half_width <= PRECISIONS[device].half_width
            enough |= plan.gives_up and figures.ci_high < HOPELESS
        if enough or (late and count >= LEAST_KEPT):
            break
    return samples


def repeats(call_ms: float, device: Device) -> int:
    """Calls in one sample."""
    return max(1, min(MAX_CALLS[device], math.ceil(CALLS_MS[device] / max(call_ms, 1e-6))))


def _total(times: Mapping[Part, Time]) -> float:
    """Milliseconds claimed for all parts."""
    return sum(part.claim for part in times.values())


def _beyond_hope(pair: Pair) -> bool:
    reference, candidate = pair
    return _total(reference) < BEYOND_HOPE * _total(candidate)


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
