"""Some of the parameters change and others do not: what the reference refuses is not asked."""

import itertools
from dataclasses import replace

import pytest
import torch

from grader.grading.oracle.other_parameters import halves, with_few_elements_of
from grader.grading.resources import Resources
from grader.verdict.models import Device
from tests import samples

FIVE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(size)) for _ in range(5))
        self.register_buffer("table", torch.arange(1.0, size + 1))

    def forward(self, x):
        return x * sum(self.weights) + self.table

def get_init_inputs():
    return [8]

def get_inputs():
    return [torch.randn(4, 8)]
"""
TIED = FIVE.replace("        self.register", "        self.weights[1] = self.weights[0]\n        self.register")


@pytest.fixture(scope="module")
def resources():
    with Resources() as made:
        yield made


def cases_of(resources, source):
    oracle = resources.oracle(samples.problem(source=source), Device.CPU)
    return oracle, oracle.case("full"), oracle.case("full", draw=1)


@pytest.mark.parametrize(("source", "count"), [(FIVE, 5), (TIED, 4)], ids=["apart", "tied"])
def test_any_two_parameters_are_parted_by_some_half(resources, source, count):
    oracle, case, other = cases_of(resources, source)
    splits = halves(oracle, case, other)
    names = {*splits[0].changed, *splits[0].others}
    assert len(names) == count
    assert "table" not in names
    for one, another in itertools.combinations(names, 2):
        assert any((one in split.changed) != (another in split.changed) for split in splits)
    for split in splits:
        assert all(split.case.state[name] is case.state[name] for name in split.others)
        assert all(split.case.state[name] is other.state[name] for name in split.changed)


def test_a_few_elements_of_each_parameter_change(resources):
    oracle, case, other = cases_of(resources, FIVE)
    few = with_few_elements_of(oracle, case, other)
    for name, value in few.state.items():
        moved = value != case.state[name]
        assert name == "table" or 1 <= int(moved.sum()) <= 3
        assert torch.equal(value[moved], other.state[name][moved])


def test_nothing_is_asked_where_there_is_one_draw(resources):
    oracle, case, _ = cases_of(resources, FIVE)
    assert halves(oracle, case, case) == ()
    assert with_few_elements_of(oracle, case, case) is None


def test_what_is_not_finite_or_refused_is_left_out(resources):
    oracle, case, other = cases_of(resources, FIVE)
    first = next(name for name in case.state if name != "table")
    for value in (torch.nan, torch.inf):
        broken = replace(other, state={**other.state, first: torch.full_like(other.state[first], value)}, seed=1)
        assert halves(oracle, case, broken) == ()
