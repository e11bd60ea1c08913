"""Noise on inputs and parameters keeps what a reference may require of them."""

import pytest
import torch

from grader.grading.oracle import drawing
from grader.grading.oracle.drawing import perturbed, values_of
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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor([0.0, 1.0, -1.0]), (True, True, True)),
        (torch.tensor([2.0, 3.0]), (False, True, False)),
        (torch.rand(100_000), (False, False, True)),
        (torch.cat([torch.ones(100_000), torch.tensor([1.5])]), (False, False, False)),
        (torch.tensor([0.5]).to(torch.float8_e4m3fn), (False, False, True)),
        (torch.zeros(3, dtype=torch.complex64), (True, False, True)),
        (torch.empty(0), (False, False, False)),
    ],
)
def test_kinds_of_values(value, expected):
    assert values_of(value) == expected


def test_a_tensors_kind_is_read_once_and_again_when_it_changes(monkeypatch):
    reads = []
    monkeypatch.setattr(drawing, "_kinds", lambda part: reads.append(part) or [True, True, True])
    value = torch.tensor([0.0, 1.0])
    for _ in range(5):
        values_of(value)
    assert len(reads) == 1
    value.add_(0.5)
    values_of(value)
    assert len(reads) == 2
