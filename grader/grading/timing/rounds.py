"""ABBA rounds of one pair of workers over all phases, warmed up, until the figures are precise enough."""

from __future__ import annotations

import math
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grader.grading.outcome import diagnose
from grader.grading.timing.calls import FIGURES, PARTS, NotQueued, Part, Phase
from grader.grading.timing.clocks import Samples, Time
from grader.grading.timing.device_clocks import ClockWatch
from grader.grading.timing.pair import WorkerPair
from grader.grading.timing.statistics import (
    FEWEST_ROUNDS,
    FIRST_CALL_FACTOR,
    HOPELESS,
    MANY_ROUNDS,
    MIN_ROUNDS,
    speedup,
)
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis


@dataclass(frozen=True)
class Plan:
    """A plan for rounds of timing: how many, and for how long."""

    min_rounds: int
    max_rounds: int
    seconds: float
    """After this long, MIN_ROUNDS are enough, or FEWEST_ROUNDS whose intervals are narrow."""
    stops_when_hopeless: bool = False
    """Ends after one round of a HOPELESS candidate, whose calls would take most of a machine's time. If it is far
    beyond that, and stays so, its very first call counts too."""
    pace_tolerance: float = 0.005
    """Relative difference of both processes' pace that is accepted where launches show."""
    short_ms: float = 0.03
    """Milliseconds of a kernel below which they do. In one process a launch costs a GPU up to 0.15 us more than in
    another: this makes half of the margin."""


QUICK = Plan(
    min_rounds=FEWEST_ROUNDS, max_rounds=5, seconds=0.8, stops_when_hopeless=True, pace_tolerance=0.03, short_ms=0.01
)
"""The plan of a grading with `quick`. A choice: the rounds take about as long as the checks before them."""


def thorough(device: Device) -> Plan:
    """The plan of a grading without `quick`."""
    return Plan(min_rounds=MANY_ROUNDS, max_rounds=backend(device).timing.most_rounds, seconds=20.0)


class WrongOutput(Exception):
    """An output or gradient of a timed call is wrong."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.diagnosis = diagnosis


PairTimes = tuple[Mapping[Part, Time], Mapping[Part, Time]]
"""Times of (reference, candidate)."""
Group = tuple[Phase, ...]
RoundTimes = tuple[tuple[Time, Time], tuple[Time, Time]]
"""One figure's two pairs of (reference, candidate)."""


class Begun(NamedTuple):
    """The first pair of a group's first round: a second warm-up, if one call fills a sample."""

    times: PairTimes
    reference_first: bool


class Rounds:
    """ABBA rounds over all phases, warmed up.

    Construction and each round raise WrongOutput and Stopped.
    """

    def __init__(
        self, pair: WorkerPair, phases: Sequence[Phase], device: Device, known_calls: dict[Phase, int], plan: Plan
    ) -> None:
        """`known_calls`: calls in one sample by phase, as learned from earlier candidates; filled in here."""
        self._pair = pair
        self._groups = (tuple(phases),) if pair.together else tuple((phase,) for phase in phases)
        """Phases that one sample times together."""
        self._calls = dict.fromkeys(phases, 1)
        self._first_calls: dict[Group, Mapping[Part, Time]] = {}
        """The candidate's times, where these may count."""
        self._begun: dict[Group, Begun] = {}
        self._rounds_until_probe = 0
        """Rounds before the one whose pairs have a probe; drawn by `begin`."""
        traits = backend(device).timing
        for group in self._groups:  # keeps lazy initialisation and autotuning out of the samples
            times = self._time_pair(group, random.random() < 0.5, counts=False)
            long = all(known_calls.get(phase) == 1 for phase in group)
            if plan.stops_when_hopeless and long and _far_beyond_hopeless(times):
                self._first_calls[group] = times[1]
            # Even if later calls take a FIRST_CALL_FACTOR less, one of them is a sample.
            if backend(device).on_host:
                limit_ms = FIRST_CALL_FACTOR * traits.sample_ms
                known_calls.update({phase: 1 for phase in group if _total(times[0], PARTS[phase]) > limit_ms})
        pair.start = "queued"
        for group in self._groups:
            short = tuple(phase for phase in group if known_calls.get(phase) != 1)
            if short:  # one warm-up is enough for a long call
                reference_first = random.random() < 0.5
                try:
                    times = self._time_pair(short, reference_first)
                    found = {phase: repeats(_total(times[0], PARTS[phase]), device) for phase in short}
                    known_calls.update(found)
                    if short == group and set(found.values()) == {1}:
                        self._begun[group] = Begun(times, reference_first)
                except NotQueued as missed:
                    if plan.stops_when_hopeless:  # each try takes half a second
                        self.begin_otherwise(missed)
        self._calls = {phase: known_calls.get(phase, 1) for phase in phases}

    def begin(self, plan: Plan) -> None:
        """Begin rounds that replace all earlier ones: one of the first has pairs with a probe."""
        self._rounds_until_probe = secrets.randbelow(min(plan.min_rounds, FEWEST_ROUNDS))

    def begin_otherwise(self, missed: NotQueued) -> None:
        """Begin calls that cannot be queued otherwise from now on, on both sides alike."""
        self._pair.start = "full queue" if missed.reference else "at once"
        self._begun.clear()

    @property
    def launches(self) -> bool:
        """Whether times contain those of launches, because calls cannot be queued."""
        return self._pair.start != "queued"

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """A note if launches were timed."""
        if not self.launches:
            return ()
        what = "a call waits for the GPU before all of it is queued, so both sides are timed with their launches"
        remedy = "do not wait for the device in forward or backward: no .item(), no synchronize()"
        if self._pair.start == "full queue":
            what = (
                "the reference's calls cannot be queued as a whole, so both sides are timed with the launches behind "
                "the first thousand, as far as these do not hide behind kernels"
            )
            remedy = "launch fewer and longer kernels"
        return (diagnose("launches_timed", what, remedy=remedy, severity="info"),)

    def run_round(self, look: Callable[[], None]) -> dict[str, RoundTimes]:
        """Times of one round by figure; `look` is called while the device is warm. Raises NotQueued too."""
        figures: dict[str, RoundTimes] = {}
        if self._calls[self._groups[0][0]] > 1:  # drawing a long call's values keeps the GPU busy until it comes
            self._pair.wake(self._groups[0][0])
        probe = self._rounds_until_probe == 0
        for group in self._groups:
            first_call = self._first_calls.pop(group, None)
            # A pair that may be the only one begins with the reference, or it could have no probe.
            reference_first = first_call is not None or random.random() < 0.5
            begun = self._begun.pop(group, None)
            if begun is None or (probe and begun.reference_first):
                begun = Begun(self._time_pair(group, reference_first, probe=probe), reference_first)
                look()
            pairs = [begun.times]
            if first_call is not None and _far_beyond_hopeless(pairs[0]):
                pairs.append((pairs[0][0], first_call))
            else:
                pairs.append(self._time_pair(group, not begun.reference_first, probe=probe))
                look()
            for name, parts in (figure for phase in group for figure in FIGURES[phase].items()):
                first_pair, second_pair = [(_sum(r, parts), _sum(c, parts)) for r, c in pairs]
                figures[name] = first_pair, second_pair
        self._rounds_until_probe -= 1  # last, because a call that raises NotQueued is not compared
        return figures

    def _time_pair(self, group: Group, reference_first: bool, *, probe: bool = False, counts: bool = True) -> PairTimes:
        calls = {phase: self._calls[phase] for phase in group}
        reference, candidate, wrong = self._pair.time_pair(calls, reference_first, probe=probe, counts=counts)
        if wrong is not None:
            raise WrongOutput(wrong)
        return reference, candidate


def collect(rounds: Rounds, watch: ClockWatch, plan: Plan, device: Device) -> dict[str, Samples]:
    """Samples by figure, until all figures are precise enough or the plan ends."""
    samples: dict[str, Samples] = defaultdict(lambda: Samples(device))
    rounds.begin(plan)
    started, count, missed = time.monotonic(), 0, False
    while count < plan.max_rounds:
        try:
            round_times = rounds.run_round(watch.look)
        except NotQueued as error:
            if missed:  # one miss may be the machine's
                rounds.begin_otherwise(error)
                rounds.begin(plan)
                samples.clear()
                count = 0
            missed = True
            continue
        late = time.monotonic() - started > plan.seconds
        enough = precise = False
        if watch.counts():
            count += 1
            for name, times in round_times.items():
                samples[name].rounds.append(times)
            figures = {name: speedup(one.reported()) for name, one in samples.items()}
            ranking = figures.get("total") or figures["forward"]
            widest = max(figure.half_width for figure in figures.values())
            precise = widest <= backend(device).timing.precision.half_width
            enough = count >= plan.min_rounds and precise
            enough |= plan.stops_when_hopeless and ranking.ci_high < HOPELESS
        if enough or (late and count >= (FEWEST_ROUNDS if precise else MIN_ROUNDS)):
            break
    for of_figure in samples.values():
        of_figure.launches = rounds.launches
    return samples


def repeats(call_ms: float, device: Device) -> int:
    """Calls in one sample."""
    timing = backend(device).timing
    return max(1, min(timing.sample_calls, math.ceil(timing.sample_ms / max(call_ms, 1e-6))))


def _total(times: Mapping[Part, Time], parts: Iterable[Part] | None = None) -> float:
    """Reported milliseconds of these parts, or of all."""
    return sum(times[part].reported for part in (times if parts is None else parts))


def _far_beyond_hopeless(times: PairTimes) -> bool:
    """Hopeless even if a first call's loading and allocating made all the difference it can."""
    reference, candidate = times
    return _total(reference) < HOPELESS / FIRST_CALL_FACTOR * _total(candidate)


def _sum(times: Mapping[Part, Time], parts: Sequence[Part]) -> Time:
    total = times[parts[0]]
    for part in parts[1:]:
        total += times[part]
    return total
