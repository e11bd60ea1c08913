"""The values of timed calls: new for each call, and the same when they are drawn again."""

import pytest
import torch

from grader.grading.resources import Resources
from grader.grading.timing.draws import Draws
from grader.verdict.models import Device
from tests import samples

SOURCE = """
import random
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def drawn(inputs, *, keep):
    problem = samples.problem(source=SOURCE.format(inputs=inputs))
    with Resources() as resources:
        oracle = resources.oracle(problem, Device.CPU)
        draws = Draws(oracle, oracle.case("full"), few_bits=False)
        one, other = (draws.source(training=True, keep=keep) for _ in range(2))
        return draws.repeat, [one.values(), one.values(), other.values()]


def tensors(draw):
    return [*draw.inputs, *draw.state.values(), *draw.cotangents.values()]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("inputs", ["torch.randn(4, 8)", "torch.ones(4, 8) / 3"])
def test_each_call_has_its_own_values_and_both_sides_the_same(inputs, keep):
    repeat, (one, again, other) = drawn(inputs, keep=keep)
    assert repeat
    assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(again), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))


def test_a_grad_output_says_nothing_of_the_inputs():
    _, (one, _, _) = drawn("torch.randn(4, 8)", keep=False)
    assert not torch.equal(one.inputs[0], one.cotangents["output"])


def test_inputs_that_no_seed_repeats_are_known():
    repeat, _ = drawn("torch.tensor([random.random() for _ in range(8)])", keep=True)
    assert not repeat
