"""Rounds of a made-up pair of workers, so that no GPU is needed."""

import random
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest

from grader.grading import chance
from grader.grading.timing import rounds as timing_rounds
from grader.grading.timing.calls import PARTS, NotQueued
from grader.grading.timing.clocks import Time
from grader.grading.timing.device_clocks import ClockWatch
from grader.grading.timing.judge import _figures
from grader.grading.timing.rounds import Rounds
from grader.grading.timing.stopping import RoundLimits
from grader.verdict.models import Device

PLAN = RoundLimits(min_rounds=3, max_rounds=3, seconds=60.0)
LAUNCHES_MS = 0.9


class Pair:
    """Each part takes `ms`, plus LAUNCHES_MS while calls are begun at once."""

    def __init__(
        self, ms, *, waits_at=(), lies_until=0, slower=1, first_slower=None, together=True, reference_waits=False
    ):
        self.start = "at once"
        self.together = together
        self.reference_waits = reference_waits
        self.calls = []
        self.probes = []
        self._ms, self._waits_at, self._lies_until, self._slower = ms, waits_at, lies_until, slower
        self._first_slower = first_slower or slower

    def reference_first(self):
        return random.random() < 0.5

    def time_pair(self, calls, reference_first, *, probe=False, counts=True):
        assert counts == (len(self.calls) >= (1 if self.together else 2))  # all but the first of each group
        self.calls.append((calls, reference_first, self.start))
        if self.start == "queued" and len(self.calls) - 1 in self._waits_at:
            raise NotQueued(reference=self.reference_waits)  # before anything is compared
        self.probes += calls if probe and reference_first else []
        ms = self._ms + LAUNCHES_MS if self.start == "at once" else self._ms
        parts = [part for phase in calls for part in PARTS[phase]]
        times = {part: Time(ms, ms + 0.4) for part in parts}
        slower = self._first_slower if self.start == "at once" else self._slower
        theirs = {part: Time(ms * slower, ms * slower + 0.4) for part in parts}
        reported = {part: Time(ms / 2, ms + 0.4) for part in parts}
        return times, reported if len(self.calls) <= self._lies_until else theirs, None

    def wake(self, phase):
        pass


def collect(pair, known=None, plan=PLAN):
    rounds = Rounds(pair, ("inference", "training"), Device.CUDA, {} if known is None else known, plan, 0.0)
    samples = timing_rounds.collect(rounds, ClockWatch(None))
    return rounds, {name: [r.reported for pairs in found.rounds for r, _ in pairs] for name, found in samples.items()}


@pytest.fixture(params=[0, 1])
def probed_round(request, monkeypatch):
    """The round that is drawn for the probes."""
    monkeypatch.setattr(chance.draw, "randrange", lambda _: request.param)
    return request.param


@pytest.fixture
def later_probe(monkeypatch):
    """Not in the first round, which the second warm-up of a long call may begin then in any order."""
    monkeypatch.setattr(chance.draw, "randrange", lambda _: 1)


@pytest.mark.usefixtures("probed_round")
@pytest.mark.parametrize(
    ("quick", "waits_at"),
    [(False, []), (False, [1]), (False, [2]), (False, range(100)), (True, [1]), (True, range(100))],
)
def test_each_phase_has_one_probe_in_a_pair_that_is_compared(waits_at, quick):
    """Whether or not calls wait for the GPU, in a warm-up or in rounds; with `quick`, long calls have one warm-up."""
    pair = Pair(0.6, waits_at=waits_at)
    collect(pair, dict(LONG) if quick else None, replace(PLAN, stops_when_hopeless=quick))
    assert pair.probes == ["inference", "training"]


@pytest.mark.usefixtures("probed_round")
@pytest.mark.parametrize("lies_until", [0, 8])
def test_rounds_that_replace_others_have_a_probe_too(lies_until):
    """Else a submission whose calls wait, or whose clock is wrong, from the third round on knows that none comes."""
    pair = Pair(2.0, lies_until=lies_until, waits_at=range(6, 100) if not lies_until else ())
    _figures(Rounds(pair, ("inference", "training"), Device.CUDA, {}, PLAN, 0.0))
    assert pair.probes == ["inference", "training"] * 2


@pytest.mark.parametrize(("ms", "inference", "training"), [(0.01, 4, 4), (0.3, 4, 2), (0.6, 2, 1), (5.0, 1, 1)])
def test_how_often_a_call_is_repeated_goes_by_its_time_without_launches(ms, inference, training):
    pair = Pair(ms)
    collect(pair)
    assert pair.calls[-1][0] == {"inference": inference, "training": training}


@pytest.mark.parametrize(("ms", "warm_up"), [(5.0, ["at once"]), (0.3, ["at once", "queued"])])
def test_a_long_call_that_is_known_from_other_candidates_is_warmed_up_once(ms, warm_up):
    known = {}
    collect(Pair(ms), known)
    pair = Pair(ms)
    collect(pair, known)
    assert [start for *_, start in pair.calls[:-6]] == warm_up
    assert pair.calls[0][0] == {"inference": 1, "training": 1}


@pytest.mark.usefixtures("later_probe")
@pytest.mark.parametrize("together", [True, False])
def test_each_figure_has_two_samples_a_round_in_mirrored_order(together):
    pair = Pair(2.0, together=together)
    rounds, reported = collect(pair)
    assert reported == {"forward": [2.0] * 6, "backward": [2.0] * 6, "total": [4.0] * 6}
    timed = defaultdict(list)
    for calls, reference_first, _ in pair.calls[1 if together else 2 :]:
        timed[tuple(calls)].append(reference_first)
    assert [*timed] == ([("inference", "training")] if together else [("inference",), ("training",)])
    for orders in timed.values():
        assert [not one for one in orders[::2]] == orders[1::2]
        assert len(orders) == 6
    assert rounds.diagnoses() == ()


@pytest.mark.usefixtures("probed_round")
@pytest.mark.parametrize("ms", [0.6, 2.0])
@pytest.mark.parametrize("reference_first", [False, True])
def test_the_second_warm_up_of_a_long_call_begins_the_first_round(monkeypatch, ms, reference_first, probed_round):
    """Of short calls, a sample has several; a pair with a probe begins with the reference."""
    monkeypatch.setattr(random, "random", lambda: 0.0 if reference_first else 1.0)
    pair = Pair(ms)
    collect(pair)
    begins = ms == 2.0 and not (reference_first and probed_round == 0)
    assert len(pair.calls) == (7 if begins else 8)
    assert pair.probes == ["inference", "training"]


@pytest.mark.parametrize(("reference_waits", "start"), [(False, "at once"), (True, "full queue")])
def test_after_two_rounds_with_waits_calls_begin_otherwise(reference_waits, start):
    """With their launches; if the reference's own calls do not fit into the queue, when it is full."""
    pair = Pair(2.0, waits_at=range(100), reference_waits=reference_waits)
    rounds, reported = collect(pair)
    assert [diagnosis.code for diagnosis in rounds.diagnoses()] == ["launches_timed"]
    assert pair.calls[-1][2] == start
    assert set(reported["forward"]) == {2.0 if reference_waits else 2.0 + LAUNCHES_MS}
    assert len(reported["forward"]) == 6


def test_after_one_wait_the_round_is_repeated_without_launches():
    pair = Pair(2.0, waits_at=[3])  # the second pair of the first round
    rounds, reported = collect(pair)
    assert rounds.diagnoses() == ()
    assert reported == {"forward": [2.0] * 6, "backward": [2.0] * 6, "total": [4.0] * 6}


@pytest.mark.usefixtures("later_probe")
@pytest.mark.parametrize(("lies_until", "disputed_figures"), [(0, 0), (7, 0), (100, 3)])
def test_rounds_are_repeated_once_if_the_clocks_disagree(lies_until, disputed_figures):
    pair = Pair(2.0, lies_until=lies_until)
    rounds = Rounds(pair, ("inference", "training"), Device.CUDA, {}, PLAN, 0.0)
    figures, _ = _figures(rounds)
    assert sum(disputed for _, disputed in figures.values()) == disputed_figures
    assert len(pair.calls) == 1 + 6 * (2 if lies_until else 1)
    assert figures["total"][0].speedup == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("slower", "stops_when_hopeless", "rounds"), [(4, True, 1), (4, False, 3), (2.5, True, 3)])
def test_only_a_quick_grading_stops_early_for_a_hopeless_candidate(slower, stops_when_hopeless, rounds):
    _, reported = collect(Pair(2.0, slower=slower), plan=replace(PLAN, stops_when_hopeless=stops_when_hopeless))
    assert len(reported["total"]) == 2 * rounds


@pytest.mark.parametrize(("noise", "rounds"), [(0.0, 1.5), (0.2, 2)])
def test_three_long_pairs_are_enough_if_they_agree(noise, rounds):
    class Noisy(Pair):
        def time_pair(self, calls, reference_first, **how):
            self._slower = 1 + noise * (len(self.calls) % 3)
            return super().time_pair(calls, reference_first, **how)

    _, reported = collect(Noisy(2.0), plan=replace(PLAN, min_rounds=1.5, max_rounds=5, seconds=0.0))
    assert len(reported["total"]) == 2 * rounds


def test_the_time_of_a_warm_up_counts(monkeypatch):
    class Slow(Pair):
        seconds = 0.0

        def time_pair(self, calls, reference_first, **how):
            Slow.seconds += 10.0
            self._slower = 1 + 0.2 * (len(self.calls) % 3)
            return super().time_pair(calls, reference_first, **how)

    monkeypatch.setattr(timing_rounds, "time", SimpleNamespace(monotonic=lambda: Slow.seconds))
    # Two pairs of warm-up, of which the second counts: the end of the second round is at 50 s.
    _, reported = collect(Slow(2.0), plan=replace(PLAN, min_rounds=5, max_rounds=5, seconds=45.0))
    assert len(reported["total"]) == 2 * 2


LONG = {"inference": 1, "training": 1}


def test_the_first_call_of_a_far_slower_candidate_counts(probed_round):
    pair = Pair(5.0, slower=30)
    _, reported = collect(pair, dict(LONG), replace(PLAN, stops_when_hopeless=True))
    assert reported["total"] == [10.0] * 2  # without launches: the reference's first call does not count
    assert [calls for calls, *_ in pair.calls] == [LONG] * 2
    assert pair.probes == ([] if probed_round else ["inference", "training"])


@pytest.mark.parametrize(("slower", "stops_when_hopeless"), [(1, True), (30, False)])
def test_a_first_call_that_loads_something_does_not(slower, stops_when_hopeless):
    pair = Pair(5.0, slower=slower, first_slower=30)
    _, reported = collect(pair, dict(LONG), replace(PLAN, stops_when_hopeless=stops_when_hopeless))
    assert len(reported["total"]) == 6
    assert set(reported["forward"]) == {5.0}


@pytest.mark.parametrize(("slower", "verdict"), [(4, "slower"), (2.5, "inconclusive")])
def test_after_one_round_only_hopeless_candidates_are_slower(slower, verdict):
    plan = RoundLimits(min_rounds=1, max_rounds=1, seconds=60.0)
    figures, _ = _figures(Rounds(Pair(2.0, slower=slower), ("inference", "training"), Device.CUDA, {}, plan, 0.0))
    assert {name: timing.verdict for name, (timing, _) in figures.items()} == dict.fromkeys(figures, verdict)


@pytest.mark.parametrize(("slower", "rounds"), [(1.0, 1.5), (1.02, 1.5), (1.06, 5), (1.125, 5), (1.3, 1.5)])
def test_a_difference_that_pages_may_make_is_seen_on_many_of_them(slower, rounds):
    _, reported = collect(Pair(2.0, slower=slower), plan=replace(PLAN, min_rounds=1.5, max_rounds=9))
    assert len(reported["total"]) == 2 * rounds


def test_but_not_however_long_that_takes():
    _, reported = collect(Pair(2.0, slower=1.06), plan=replace(PLAN, min_rounds=1.5, max_rounds=9, seconds=0.0))
    assert len(reported["total"]) == 2 * 1.5
