"""Intervals hold the truth as often as they say, of few rounds and of many."""

import math
import random

import pytest

from grader.models import Device
from grader.stages.timing.statistics import HOPELESS, Round, speedup, verdict_of

TRUTH = 1.3


def rounds(count, source, noise=0.01):
    def reference():
        return TRUTH * math.exp(source.gauss(0, noise))

    return [Round((reference(), reference()), (1.0, 1.0)) for _ in range(count)]


@pytest.mark.parametrize(("count", "least"), [(1, 0.93), (2, 0.93), (3, 0.9), (7, 0.92), (25, 0.92)])
def test_an_interval_holds_the_truth_as_often_as_it_says(count, least):
    source = random.Random(count)
    tries = 400
    found = [speedup(rounds(count, source)) for _ in range(tries)]
    assert least <= sum(one.ci_low <= TRUTH <= one.ci_high for one in found) / tries <= 0.99


def test_the_same_samples_have_the_same_interval():
    for count in (1, 5):
        assert speedup(rounds(count, random.Random(0))) == speedup(rounds(count, random.Random(0)))


@pytest.mark.parametrize(("candidate_ms", "told"), [((3.6, 3.61), "slower"), ((3.2, 4.2), "inconclusive")])
def test_one_round_tells_a_hopeless_one_where_it_is_steady(candidate_ms, told):
    found = speedup([Round((1.0, 1.0), candidate_ms)])
    assert (found.ci_high < HOPELESS) == (told == "slower")
    assert verdict_of(found.ci_low, found.ci_high, 1, Device.CUDA, 1.0) == told
