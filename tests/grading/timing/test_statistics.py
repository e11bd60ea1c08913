"""Intervals cover the truth as often as they say, after few rounds and many; verdicts that follow."""

import math
import random
import statistics

import pytest

from benchmarks.timing_rule import Processes, one_pair, share_slower
from grader.grading.timing.statistics import HOPELESS, Bias, Round, outcome_of, speedup, students_t
from grader.grading.timing.stopping import QUICK
from grader.verdict.models import Device

TRUTH = 1.3


def normal(source):
    return source.gauss(0, 0.01)


def of_two_kinds(source):
    """Samples of four short calls on a GPU, by both sides: what came before them decides, noise is small beside it."""
    return statistics.fmean(source.choice((-0.05, 0.0, 0.0, 0.05)) + source.gauss(0, 0.003) for _ in range(4))


def rounds(count, source, noise=normal):
    def reference():
        return TRUTH * math.exp(noise(source))

    whole = [Round((reference(), reference()), (1.0, 1.0)) for _ in range(int(count))]
    return whole if count == len(whole) else [*whole, Round((reference(),), (1.0,))]


@pytest.mark.parametrize(
    ("count", "noise"), [*((n, normal) for n in (1, 1.5, 2, 3, 7, 25)), *((n, of_two_kinds) for n in (3, 7, 25))]
)
def test_an_interval_covers_the_truth_as_often_as_it_says(count, noise):
    source = random.Random(int(2 * count))
    tries = 400
    found = [speedup(rounds(count, source, noise)) for _ in range(tries)]
    assert 0.93 <= sum(one.ci_low <= TRUTH <= one.ci_high for one in found) / tries <= 0.99


def test_calls_of_two_kinds_are_averaged_efficiently():
    source = random.Random(0)
    errors = [speedup(rounds(20, source, of_two_kinds)).speedup / TRUTH - 1 for _ in range(200)]
    one = statistics.pstdev(of_two_kinds(source) for _ in range(1000))
    assert statistics.pstdev(errors) < 1.15 * one / math.sqrt(40)


def test_a_few_delayed_calls_change_nothing():
    source = random.Random(0)
    calm = rounds(10, source)
    held_up = [Round((r.reference_ms[0], 1.4 * r.reference_ms[1]), r.candidate_ms) for r in calm[:2]] + calm[2:]
    assert speedup(held_up).speedup == pytest.approx(speedup(calm).speedup, rel=0.005)


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.706), (5, 2.5706), (9, 2.2622), (71, 1.9939)])
def test_students_t(degrees, quantile):
    assert students_t(degrees) == pytest.approx(quantile, rel=0.002)


def test_the_same_samples_have_the_same_interval():
    for count in (1, 5):
        assert speedup(rounds(count, random.Random(0))) == speedup(rounds(count, random.Random(0)))


@pytest.mark.parametrize(("candidate_ms", "verdict"), [((3.6, 3.61), "slower"), ((3.2, 4.2), "inconclusive")])
def test_after_one_round_a_steady_hopeless_candidate_is_slower(candidate_ms, verdict):
    found = speedup([Round((1.0, 1.0), candidate_ms)])
    assert (found.ci_high < HOPELESS) == (verdict == "slower")
    assert outcome_of(found.ci_low, found.ci_high, 1, Device.CUDA, 1.0) == verdict


@pytest.mark.parametrize(
    ("low", "high", "rounds", "verdict"),
    [
        (1.034, 1.049, 3, "inconclusive"),
        (1.034, 1.049, 7, "faster"),
        (1.040, 1.060, 3, "inconclusive"),  # pages may be
        (1.040, 1.060, 5, "faster"),
        (1.135, 1.150, 3, "faster"),
        (0.955, 0.970, 5, "inconclusive"),
        (0.955, 0.970, 7, "slower"),
        (0.940, 0.960, 5, "slower"),
        (0.995, 1.005, 3, "same"),
        (0.985, 1.005, 3, "inconclusive"),
        (0.998, 1.002, 1.5, "same"),
        (1.500, 1.508, 2, "faster"),
        (1.450, 1.550, 2, "faster"),
        (1.450, 1.550, 1.5, "inconclusive"),
        (0.998, 1.002, 1, "inconclusive"),
        (0.990, 1.006, 1.5, "inconclusive"),
        (7.502, 17.965, 2, "inconclusive"),  # equal programs on a busy host
        (0.032, 0.230, 2, "inconclusive"),
        (0.032, 0.100, 2, "slower"),
        (7.502, 14.900, 2, "faster"),
        (7.502, 17.965, 5, "faster"),
    ],
)
def test_after_few_rounds_a_difference_is_more_than_two_processes_differ_by(low, high, rounds, verdict):
    assert outcome_of(low, high, rounds, Device.CUDA, 4.2) == verdict


@pytest.mark.parametrize(
    ("low", "high", "rounds", "verdict"),
    [
        (1.148, 1.625, 3, "inconclusive"),
        (1.85, 2.2, 3, "faster"),
        (0.52, 0.588, 4, "inconclusive"),
        (0.45, 0.54, 4, "slower"),
        (1.148, 1.2, 7, "faster"),
    ],
)
def test_with_launches_a_difference_is_more_than_two_hosts_differ_by(low, high, rounds, verdict):
    assert outcome_of(low, high, rounds, Device.CUDA, 12.0, Bias(launches=True)) == verdict


def test_of_short_kernels_a_difference_is_more_than_the_paces_of_two_processes_differ_by():
    low, high = 1.0417, 1.0457  # a vision transformer against itself, a hundred kernels in 0.6 ms
    assert outcome_of(low, high, 5, Device.CUDA, 1.0) == "faster"
    assert outcome_of(low, high, 5, Device.CUDA, 1.0, Bias(pace_apart=0.03)) == "inconclusive"
    assert outcome_of(low + 0.03, high + 0.03, 5, Device.CUDA, 1.0, Bias(pace_apart=0.03)) == "faster"


@pytest.mark.parametrize("noise", [0.001, 0.005])
def test_a_quick_timing_finds_no_difference_between_equal_programs(noise):
    processes = Processes(offset=0.014, noise=noise, held_up=0.02)
    verdicts = [one_pair(processes, QUICK, Device.CUDA, 1.0)[0] for _ in range(300)]
    assert not {"faster", "slower"} & set(verdicts)
    assert share_slower(lambda slowdown: one_pair(processes, QUICK, Device.CUDA, slowdown), 1.08, 100) > 0.9
