"""Noise keeps what a reference may require of its inputs and parameters, and rounding keeps TensorFloat-32's bits."""

import pytest
import torch

from grader.grading.oracle import values
from grader.grading.oracle.values import perturbed, perturbed_state, rounded_each, values_of, values_of_each
from grader.grading.timing.draws import _noisy_each

NEARLY_ONE = 1 - 2.0**-24


@pytest.mark.parametrize("noisy", [lambda value: perturbed([value])[0], lambda value: _noisy_each([value], 1e-3)[0]])
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
    (other,) = perturbed([value])
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
    monkeypatch.setattr(values, "_kinds", lambda part: reads.append(part) or [part == part] * 3)
    value = torch.tensor([0.0, 1.0])
    for _ in range(5):
        values_of(value)
    assert len(reads) == 1
    value.add_(0.5)
    values_of(value)
    assert len(reads) == 2


def test_many_tensors_are_known_and_moved_as_each_alone():
    torch.manual_seed(0)
    tensors = {
        "mask": torch.tensor([0.0, 1.0, -1.0]),
        "codes": torch.tensor([2.0, 3.0, 7.0]),
        "cosines": torch.rand(50, 3).t(),
        "weights": torch.randn(40, 7),
        "one": torch.tensor(1.5),
        "complex": torch.randn(4, dtype=torch.complex64),
        "half": torch.randn(30).half(),
        "whole half": torch.arange(3.0).half(),
        "indices": torch.arange(4),
        "none": torch.empty(0),
    }
    assert values_of_each(list(tensors.values())) == [values_of(value.clone()) for value in tensors.values()]
    moved = perturbed_state(tensors, 1e4)
    assert list(moved) == list(tensors)
    for name, value in tensors.items():
        assert (moved[name].shape, moved[name].dtype) == (value.shape, value.dtype), name
        assert torch.equal(moved[name], value) == (name in {"mask", "indices", "none"}), name
    assert bool((moved["codes"] >= tensors["codes"]).all())
    assert float(moved["cosines"].abs().max()) <= 1
    off = (moved["weights"] / tensors["weights"] - 1).std() / (1e4 * torch.finfo(torch.float32).eps)
    assert 0.9 < float(off) < 1.1


def test_rounding_to_tensorfloat32_keeps_ten_bits_of_mantissa():
    values = torch.tensor([1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -(1 + 2**-11), 2**-130 * 1.0, 0.0, float("inf")])
    expected = torch.tensor([1 + 2**-10, 1 + 2**-10, 1.0, -(1 + 2**-10), 2**-130 * 1.0, 0.0, float("inf")])
    assert torch.equal(rounded_each([values])[0], expected)
    drawn = torch.randn(10_000)
    error = (rounded_each([drawn])[0] / drawn - 1).abs().max()
    assert 2**-12 < error <= 2**-11


def test_only_float32_tensors_are_rounded():
    for value in (torch.randn(4, dtype=torch.float64), torch.arange(4), 1.5, None):
        assert rounded_each([value])[0] is value
