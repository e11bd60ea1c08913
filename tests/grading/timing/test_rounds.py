"""What is asked of both arms, round by round; the arms are of our own making, so that there need be no GPU."""

from collections import Counter
from dataclasses import replace

import pytest

from grader.grading.timing import rounds as timing_rounds
from grader.grading.timing.call import PARTS
from grader.grading.timing.caller import NotQueued
from grader.grading.timing.clocks import Time
from grader.grading.timing.device_clocks import ClockWatch
from grader.grading.timing.judge import _figures
from grader.grading.timing.rounds import Plan, Rounds
from grader.verdict.models import Device

PLAN = Plan(min_rounds=3, max_rounds=3, seconds=60.0)
LAUNCHES_MS = 0.9


class Arms:
    """A part takes so long; what launching takes comes on top while calls are not queued."""

    def __init__(self, ms, *, waits_at=(), lies_until=0, slower=1, first_slower=None):
        self.queues = False
        self.asked = []
        self._ms, self._waits_at, self._lies_until, self._slower = ms, waits_at, lies_until, slower
        self._first_slower = first_slower or slower

    def pair(self, phase, reference_first, calls):
        self.asked.append((phase, reference_first, calls, self.queues))
        if self.queues and len(self.asked) - 1 in self._waits_at:
            raise NotQueued
        ms = self._ms if self.queues else self._ms + LAUNCHES_MS
        times = {part: Time(ms, ms + 0.4) for part in PARTS[phase]}
        slower = self._slower if self.queues else self._first_slower
        theirs = {part: Time(ms * slower, ms * slower + 0.4) for part in PARTS[phase]}
        claims = {part: Time(ms / 2, ms + 0.4) for part in PARTS[phase]}
        return times, claims if len(self.asked) <= self._lies_until else theirs, None

    def wake(self, phase):
        pass


def collect(arms, known=None, plan=PLAN):
    of = Rounds(arms, ("inference", "training"), Device.CUDA, {} if known is None else known, plan)
    samples = timing_rounds.collect(of, ClockWatch(None), plan, Device.CUDA)
    return of, {name: [r.claim for pairs in found.rounds for r, _ in pairs] for name, found in samples.items()}


@pytest.mark.parametrize(("ms", "inference", "training"), [(0.01, 4, 4), (0.3, 4, 2), (0.6, 2, 1), (5.0, 1, 1)])
def test_how_often_a_call_is_repeated_goes_by_its_time_without_launches(ms, inference, training):
    arms = Arms(ms)
    collect(arms)
    last = {phase: calls for phase, _, calls, _ in arms.asked}
    assert last == {"inference": inference, "training": training}


@pytest.mark.parametrize(("ms", "warm_up"), [(5.0, [False, False]), (0.3, [False, False, True, True])])
def test_a_long_call_that_is_known_from_other_candidates_is_warmed_up_once(ms, warm_up):
    known = {}
    collect(Arms(ms), known)
    arms = Arms(ms)
    collect(arms, known)
    assert [queues for *_, queues in arms.asked[:-12]] == warm_up
    assert [phase for phase, *_ in arms.asked[:2]] == ["inference", "training"]


def test_each_figure_has_two_samples_a_round_in_mirrored_order():
    arms = Arms(2.0)
    rounds, claims = collect(arms)
    assert claims == {"forward": [2.0] * 6, "backward": [2.0] * 6, "total": [4.0] * 6}
    timed = arms.asked[4:]
    for one, other in zip(timed[::2], timed[1::2], strict=True):
        assert (one[0], one[1]) == (other[0], not other[1])
    assert Counter(phase for phase, *_ in timed) == {"inference": 6, "training": 6}
    assert rounds.diagnoses() == ()


def test_who_waits_in_two_rounds_has_all_of_them_timed_with_launches():
    arms = Arms(2.0, waits_at=range(100))
    rounds, claims = collect(arms)
    assert [told.code for told in rounds.diagnoses()] == ["launches_timed"]
    assert set(claims["forward"]) == {2.0 + LAUNCHES_MS}
    assert len(claims["forward"]) == 6


def test_who_waits_once_goes_on_without_launches_and_what_was_begun_does_not_count():
    arms = Arms(2.0, waits_at=[6])  # the training phase of the first round
    rounds, claims = collect(arms)
    assert rounds.diagnoses() == ()
    assert claims == {"forward": [2.0] * 6, "backward": [2.0] * 6, "total": [4.0] * 6}


@pytest.mark.parametrize(("lies_until", "told"), [(0, 0), (16, 0), (100, 3)])
def test_whoever_is_contradicted_is_asked_once_more(lies_until, told):
    arms = Arms(2.0, lies_until=lies_until)
    rounds = Rounds(arms, ("inference", "training"), Device.CUDA, {}, PLAN)
    figures, _ = _figures(rounds, PLAN, Device.CUDA)
    assert sum(disputed for _, disputed in figures.values()) == told
    assert len(arms.asked) == 4 + 12 * (2 if lies_until else 1)
    assert figures["total"][0].speedup == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(("slower", "gives_up", "rounds"), [(4, True, 1), (4, False, 3), (2.5, True, 3)])
def test_only_a_quick_grading_gives_up_on_whoever_takes_three_times_as_long(slower, gives_up, rounds):
    _, claims = collect(Arms(2.0, slower=slower), plan=replace(PLAN, gives_up=gives_up))
    assert len(claims["total"]) == 2 * rounds


LONG = {"inference": 1, "training": 1}


def test_the_first_call_of_whoever_is_beyond_hope_counts():
    arms = Arms(5.0, slower=30)
    _, claims = collect(arms, dict(LONG), replace(PLAN, gives_up=True))
    assert len(arms.asked) == 4
    assert claims["total"] == [10.0] * 2  # without launches: the reference's first call does not count
    for one, other in ((arms.asked[0], arms.asked[2]), (arms.asked[1], arms.asked[3])):
        assert (one[0], one[1]) == (other[0], not other[1])


@pytest.mark.parametrize(("slower", "gives_up"), [(1, True), (30, False)])
def test_a_first_call_that_loads_something_does_not(slower, gives_up):
    arms = Arms(5.0, slower=slower, first_slower=30)
    _, claims = collect(arms, dict(LONG), replace(PLAN, gives_up=gives_up))
    assert len(claims["total"]) == 6
    assert set(claims["forward"]) == {5.0}


@pytest.mark.parametrize(("slower", "verdict"), [(4, "slower"), (2.5, "inconclusive")])
def test_one_round_says_slower_of_hopeless_ones_alone(slower, verdict):
    rounds = Rounds(Arms(2.0, slower=slower), ("inference", "training"), Device.CUDA, {}, PLAN)
    figures, _ = _figures(rounds, Plan(min_rounds=1, max_rounds=1, seconds=60.0), Device.CUDA)
    assert {name: timing.verdict for name, (timing, _) in figures.items()} == dict.fromkeys(figures, verdict)
