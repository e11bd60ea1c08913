"""Noise on inputs and parameters keeps what a reference may require of them."""

import pytest
import torch

from grader.grading.oracle.drawing import perturbed
from grader.grading.timing.pair import _noisy
from grader.verdict.models import Device

NEARLY_ONE = 1 - 2.0**-24


@pytest.mark.parametrize("noisy", [lambda value: perturbed([value], Device.CPU)[0], lambda value: _noisy(value, 1e-3)])
def test_probabilities_and_cosines_stay_in_their_range(noisy):
    value = torch.full((100,), NEARLY_ONE)
    value[:50] *= -1
    value[:20] = 0.5
    other = noisy(value)
    assert other.abs().max() <= 1
    assert (other[:20] != 0.5).any()  # noise below half a unit in the last place leaves an element as it is


def test_larger_values_may_become_larger():
    value = torch.full((100,), NEARLY_ONE)
    value[0] = 1.5
    (other,) = perturbed([value], Device.CPU)
    assert other.max() > other[1:].max() > 1
