"""Some of the parameters change and others do not: what the reference refuses is not asked."""

from dataclasses import replace

import pytest
import torch

from grader.grading.oracle.other_parameters import one_after_another, with_few_elements_of
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
def test_each_parameter_changes_alone_and_in_the_end_all_have(resources, source, count):
    oracle, case, other = cases_of(resources, source)
    changes = one_after_another(oracle, case, other)
    names = [name for change in changes for name in change.changed]
    assert (len(changes), len(names), len(set(names))) == (count, count, count)
    assert "table" not in names
    for at, change in enumerate(changes):
        for name, value in change.case.state.items():
            assert torch.equal(value, (other if name in names[: at + 1] else case).state[name])
        expected = change.case.inputs[0] * sum(tensor for name, tensor in change.case.state.items() if name != "table")
        if source is FIVE:
            right = (expected + case.state["table"]).double()
            assert torch.allclose(change.case.outputs["output"].reference64.double(), right, atol=1e-5)


def test_of_many_parameters_some_change_alone_and_then_the_others(resources):
    oracle, case, other = cases_of(resources, FIVE.replace("range(5)", "range(20)"))
    changes = one_after_another(oracle, case, other)
    assert [len(change.changed) for change in changes] == [1, 1, 1, 1, 1, 15]


def test_what_the_reference_refuses_comes_with_the_next_change(resources):
    refusing = FIVE.replace(
        "        return", "        assert self.weights[1][0] != 2 or self.weights[0][0] == 3, 'refused'\n        return"
    )
    oracle, case, other = cases_of(resources, refusing)
    for name, value in (("weights.0", 3.0), ("weights.1", 2.0)):
        other = replace(other, state={**other.state, name: torch.full_like(other.state[name], value)})
    for seed in range(8):  # in any order
        changes = one_after_another(oracle, replace(case, seed=seed), other)
        steps = [name for change in changes for name in sorted(change.changed)]
        assert sorted(steps) == [f"weights.{i}" for i in range(5)]
        assert steps.index("weights.0") < steps.index("weights.1")


def test_a_few_elements_of_each_parameter_change(resources):
    oracle, case, other = cases_of(resources, FIVE)
    few = with_few_elements_of(oracle, case, other)
    for name, value in few.state.items():
        moved = value != case.state[name]
        assert name == "table" or 1 <= int(moved.sum()) <= 3
        assert torch.equal(value[moved], other.state[name][moved])


def test_nothing_is_asked_where_there_is_one_draw(resources):
    oracle, case, _ = cases_of(resources, FIVE)
    assert one_after_another(oracle, case, case) == ()
    assert with_few_elements_of(oracle, case, case) is None


def test_what_is_not_finite_or_refused_is_left_out(resources):
    oracle, case, other = cases_of(resources, FIVE)
    first = next(name for name in case.state if name != "table")
    for value in (torch.nan, torch.inf):
        broken = replace(other, state={**other.state, first: torch.full_like(other.state[first], value)}, seed=1)
        assert one_after_another(oracle, case, broken) == ()
