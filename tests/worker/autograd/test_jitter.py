"""Noise in what operators choose elements by."""

import pytest
import torch

from grader.protocol import Jitter
from grader.worker.autograd.changes import changed_forward


def with_noise(function, *args, turn=0, size=1e-3):
    with changed_forward(Jitter(size=size, turn=turn), {}):
        return function(*args)


@pytest.mark.parametrize("function", [lambda x: x.argmax(-1), lambda x: x.max(-1).indices, lambda x: x.topk(2).indices])
@pytest.mark.parametrize("value", [0.0, 6.0, float("-inf"), float("nan")])
def test_an_odd_turn_orders_a_tie_otherwise(function, value):
    x = torch.full((5, 2), value)
    even, odd = (with_noise(function, x, turn=turn) for turn in (2, 3))
    assert bool((even != odd).all())


def test_what_is_far_apart_stays():
    x = torch.tensor([[1.0, 2.0, float("-inf")], [-1e9, 0.5, -1e9]])
    for turn in range(16):
        assert with_noise(lambda: x.argmax(-1), turn=turn).tolist() == [1, 1]


def test_values_and_conversions_within_range_stay():
    x = torch.randn(50)
    assert torch.equal(with_noise(lambda: x * 2), x * 2)
    assert torch.equal(with_noise(lambda: (x * 30).to(torch.int8)), (x * 30).to(torch.int8))
    assert torch.equal(with_noise(lambda: x > 0), x > 0)


def test_conversions_beyond_the_range_are_drawn():
    x = torch.full((200,), 300.0)
    assert len(set(with_noise(lambda: x.to(torch.uint8)).tolist())) > 20
    assert len(set(with_noise(lambda: torch.zeros(200, dtype=torch.int64).copy_(x * 1e20)).tolist())) > 20


def test_random_numbers_of_the_model_stay():
    torch.manual_seed(7)
    usual = torch.rand(8)
    torch.manual_seed(7)
    with_noise(lambda: torch.ones(8).argmax())
    assert torch.equal(torch.rand(8), usual)
