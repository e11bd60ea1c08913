"""ABBA rounds of one pair of workers over all phases, warmed up, until the figures are precise enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from grader.grading import chance
from grader.grading.messages import diagnose
from grader.grading.timing.calls import FIGURES, PARTS, NotQueued, Part, Phase
from grader.grading.timing.clocks import Samples, Time
from grader.grading.timing.comparison import Wrong
from grader.grading.timing.device_clocks import ClockWatch
from grader.grading.timing.pair import WorkerPair
from grader.grading.timing.statistics import FEWEST_ROUNDS, FIRST_CALL_FACTOR, HOPELESS, Bias
from grader.grading.timing.stopping import RoundLimits, are_enough, are_precise, count_of
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis


class WrongOutput(Exception):
    """An output or gradient of a timed call is wrong."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(wrong.diagnosis.message)
        self.diagnosis, self.case, self.source = wrong


PairTimes = tuple[Mapping[Part, Time], Mapping[Part, Time]]
"""Times of (reference, candidate)."""
Group = tuple[Phase, ...]
FigureTimes = Mapping[str, tuple[Time, Time]]
"""Each figure's times of (reference, candidate) in one pair."""


class Begun(NamedTuple):
    """The first pair of a group's first round: a second warm-up, if one call fills a sample."""

    times: PairTimes
    reference_first: bool


class Rounds:
    """ABBA rounds over all phases, warmed up.

    Construction and each round raise WrongOutput and Stopped.
    """

    def __init__(
        self,
        pair: WorkerPair,
        phases: Sequence[Phase],
        device: Device,
        known_calls: dict[Phase, int],
        limits: RoundLimits,
        pace_apart: float,
    ) -> None:
        """`known_calls`: calls in one sample by phase, as learned from earlier candidates; filled in here."""
        self.device, self.limits, self._pace_apart = device, limits, pace_apart
        self._pair = pair
        self._groups = (tuple(phases),) if pair.together else tuple((phase,) for phase in phases)
        """Phases that one sample times together."""
        self._calls = dict.fromkeys(phases, 1)
        """Calls in one sample."""
        self._first_calls: dict[Group, Mapping[Part, Time]] = {}
        """The candidate's times, where these may count."""
        self._begun: dict[Group, Begun] = {}
        self._rounds_until_probe = 0
        """Rounds before the one whose pairs have a probe; drawn by `begin`."""
        began = time.monotonic()
        self._make_first_calls(known_calls)
        pair.start = "queued"
        self._learn_calls(known_calls)
        self.warm_up_seconds = time.monotonic() - began
        self._calls = {phase: known_calls.get(phase, 1) for phase in phases}

    def _make_first_calls(self, known_calls: dict[Phase, int]) -> None:
        """Keep lazy initialisation and autotuning out of the samples."""
        for group in self._groups:
            times = self._time_pair(group, self._pair.reference_first(), counts=False)
            long = all(known_calls.get(phase) == 1 for phase in group)
            if self.limits.stops_when_hopeless and long and _far_beyond_hopeless(times):
                self._first_calls[group] = times[1]
            # Even if later calls take a FIRST_CALL_FACTOR less, one of them is a sample.
            if backend(self.device).on_host:
                limit_ms = FIRST_CALL_FACTOR * backend(self.device).timing.sample_ms
                known_calls.update({phase: 1 for phase in group if _total(times[0], PARTS[phase]) > limit_ms})

    def _learn_calls(self, known_calls: dict[Phase, int]) -> None:
        """Time a second call of each phase unless it is known to be long: one warm-up is enough for those."""
        for group in self._groups:
            short = tuple(phase for phase in group if known_calls.get(phase) != 1)
            if not short:
                continue
            reference_first = self._pair.reference_first()
            try:
                times = self._time_pair(short, reference_first)
            except NotQueued as missed:
                if self.limits.stops_when_hopeless:  # each try takes a quarter of a second
                    self.begin_otherwise(missed)
                continue
            found = {phase: repeats(_total(times[0], PARTS[phase]), self.device) for phase in short}
            known_calls.update(found)
            if short == group and set(found.values()) == {1}:
                self._begun[group] = Begun(times, reference_first)

    def begin(self) -> None:
        """Begin rounds that replace all earlier ones: one of the first has pairs with a probe."""
        self._rounds_until_probe = chance.draw.randrange(math.ceil(min(self.limits.min_rounds, FEWEST_ROUNDS)))

    def begin_otherwise(self, missed: NotQueued) -> None:
        """Begin calls that cannot be queued otherwise from now on, on both sides alike."""
        self._pair.start = "full queue" if missed.reference else "at once"
        self._begun.clear()

    @property
    def launches(self) -> bool:
        """Whether times contain those of launches, because calls cannot be queued."""
        return self._pair.start != "queued"

    @property
    def bias(self) -> Bias:
        """The causes that may set the two processes apart."""
        return Bias(self.launches, self._pace_apart)

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

    def run_round(self, look: Callable[[], None]) -> Iterator[FigureTimes]:
        """Yields the times of both pairs of a round, of which the timing may end with the first one.

        `look` is called while the device is warm. Raises NotQueued too.
        """
        if self._calls[self._groups[0][0]] > 1:  # drawing a long call's values keeps the GPU busy until it comes
            self._pair.wake(self._groups[0][0])
        probe = self._rounds_until_probe == 0
        first = {group: self._first_pair(group, look, probe=probe) for group in self._groups}
        yield _figures({group: begun.times for group, begun in first.items()})
        second = {group: self._second_pair(group, begun, look, probe=probe) for group, begun in first.items()}
        self._rounds_until_probe -= 1  # here, because a call that raises NotQueued is not compared
        yield _figures(second)

    def _first_pair(self, group: Group, look: Callable[[], None], *, probe: bool) -> Begun:
        begun = self._begun.pop(group, None)
        if begun is not None and not (probe and begun.reference_first):
            return begun
        # A pair that may be the only one begins with the reference, or it could have no probe.
        reference_first = probe or group in self._first_calls or self._pair.reference_first()
        times = self._time_pair(group, reference_first, probe=probe)
        look()
        return Begun(times, reference_first)

    def _second_pair(self, group: Group, begun: Begun, look: Callable[[], None], *, probe: bool) -> PairTimes:
        first_call = self._first_calls.pop(group, None)
        if first_call is not None and _far_beyond_hopeless(begun.times):
            return begun.times[0], first_call
        times = self._time_pair(group, not begun.reference_first, probe=probe)
        look()
        return times

    def _time_pair(self, group: Group, reference_first: bool, *, probe: bool = False, counts: bool = True) -> PairTimes:
        calls = {phase: self._calls[phase] for phase in group}
        reference, candidate, wrong = self._pair.time_pair(calls, reference_first, probe=probe, counts=counts)
        if wrong is not None:
            raise WrongOutput(wrong)
        return reference, candidate


def collect(rounds: Rounds, watch: ClockWatch) -> dict[str, Samples]:
    """Samples by figure, until all figures are precise enough or the plan ends."""
    samples: dict[str, Samples] = {}
    rounds.begin()
    started, missed = time.monotonic() - rounds.warm_up_seconds, False
    while count_of(samples) < rounds.limits.max_rounds:
        try:
            longer = _with_next_round(samples, rounds, watch)
        except NotQueued as error:
            if missed:  # one miss may be the machine's
                rounds.begin_otherwise(error)
                rounds.begin()
                samples = {}
            missed = True
            continue
        if watch.counts():
            samples = longer
        if are_enough(samples, rounds.limits, time.monotonic() - started):
            break
    return samples


def _with_next_round(samples: Mapping[str, Samples], rounds: Rounds, watch: ClockWatch) -> dict[str, Samples]:
    """The samples with one more round, or with its first pair if that is enough. Raises NotQueued."""
    pairs: list[FigureTimes] = []
    for times in rounds.run_round(watch.look):
        pairs.append(times)
        longer = {}
        for name in times:
            earlier = samples[name].rounds if samples else []
            longer[name] = Samples(rounds.device, [*earlier, tuple(pair[name] for pair in pairs)], rounds.bias)
        if count_of(longer) >= rounds.limits.min_rounds and are_precise(longer):
            break
    return longer


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


def _figures(times: Mapping[Group, PairTimes]) -> FigureTimes:
    """The times of the figures of each group's phases."""
    return {
        name: (_sum(of_group[0], parts), _sum(of_group[1], parts))
        for group, of_group in times.items()
        for phase in group
        for name, parts in FIGURES[phase].items()
    }


def _sum(times: Mapping[Part, Time], parts: Sequence[Part]) -> Time:
    total = times[parts[0]]
    for part in parts[1:]:
        total += times[part]
    return total
