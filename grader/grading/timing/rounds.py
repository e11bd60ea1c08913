"""ABBA rounds of one pair of processes over all phases, warmed up, until the figures are known well enough."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grader.grading.outcome import diagnose
from grader.grading.timing.call import FIGURES, Part, Phase
from grader.grading.timing.caller import NotQueued
from grader.grading.timing.clocks import Samples, Time
from grader.grading.timing.device_clocks import ClockWatch
from grader.grading.timing.pair import Arms
from grader.grading.timing.statistics import BEYOND_HOPE, HOPELESS, PRECISIONS, speedup
from grader.verdict.models import Device, Diagnosis

LEAST_KEPT = 3
"""Rounds, however late it is."""
MISSES = 2
"""Rounds in which a call could not be queued, until none is asked to."""
CALLS_MS = {Device.CPU: 4.0, Device.CUDA: 1.0}
LONG_MS = 3 * CALLS_MS[Device.CPU]
"""Of a first call on a CPU, which takes less than three times what later ones do: they take more than CALLS_MS."""
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
    alike: float = 0.005
    """Relative difference of both processes' pace, where launches show: closer is not asked for."""


QUICK = Plan(min_rounds=3, max_rounds=5, seconds=0.8, gives_up=True, alike=0.03)
THOROUGH = {
    Device.CPU: Plan(min_rounds=7, max_rounds=25, seconds=20.0),
    Device.CUDA: Plan(min_rounds=7, max_rounds=60, seconds=20.0),
}
"""A GPU's shortest calls need many rounds, which are short as well."""


class WrongOutput(Exception):
    """A timed output was not what it should be."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.diagnosis = diagnosis


Pair = tuple[Mapping[Part, Time], Mapping[Part, Time]]
"""Times of (reference, candidate)."""
OfRound = tuple[tuple[Time, Time], tuple[Time, Time]]
"""One figure's two pairs of (reference, candidate)."""


class Rounds:
    """ABBA rounds over all phases, warmed up. Making it and each round raise WrongOutput and Stopped."""

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
            if device is Device.CPU and _total(pair[0]) > LONG_MS:
                known[phase] = 1
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
        if self._calls[self._phases[0]] > 1:  # what is drawn for a long call keeps the GPU busy until it comes
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
            raise WrongOutput(wrong)
        return reference, candidate


def collect(rounds: Rounds, watch: ClockWatch, plan: Plan, device: Device) -> dict[str, Samples]:
    """Samples by figure, until all are known well enough or the plan's end is reached."""
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
            figures = {name: speedup(of.claims()) for name, of in samples.items()}
            ranking = figures.get("total") or figures["forward"]
            widest = max(figure.half_width for figure in figures.values())
            enough = count >= plan.min_rounds and widest <= PRECISIONS[device].half_width
            enough |= plan.gives_up and ranking.ci_high < HOPELESS
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
