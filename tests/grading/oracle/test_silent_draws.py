"""A draw in which all of a gradient is zero by chance is replaced."""

import pytest

from grader.grading.oracle.first_look import FEWEST_SEEDS
from grader.grading.resources import Resources
from grader.verdict.models import Device, Problem

GATE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.randint(2, (1,)) * 2.0 - 1)

    def forward(self, x):
        return {output}


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(3, 4)]
"""


@pytest.fixture(scope="module")
def resources():
    with Resources() as made:
        yield made


def problem(name, output):
    return Problem(id=name, path=f"{name}.py", source=GATE.format(output=output))


@pytest.mark.parametrize("number", range(5))
def test_each_draw_has_gradients(resources, number):
    oracle = resources.oracle(problem(f"gate_{number}", "x.sin() * torch.relu(self.gate)"), Device.CPU)
    for case in (oracle.case("full"), oracle.case("full", draw=1)):
        assert all(gradient is not None and gradient.reference64.any() for gradient in case.gradients.values())


def test_gradients_that_are_always_zero_are_asked_for_once(resources, monkeypatch):
    oracle = resources.oracle(problem("rounded", "x.round() * self.gate"), Device.CPU)
    constructed = []
    models, under = oracle.models, oracle.models.constructed_under
    monkeypatch.setattr(models, "constructed_under", lambda *args, **how: constructed.append(1) or under(*args, **how))
    cases = [oracle.case("full", draw=draw) for draw in range(3)]
    assert len(constructed) == FEWEST_SEEDS
    for case in cases:
        inputs, gate = (case.gradients[name] for name in ("input[0]", "gate"))
        assert not inputs.reference64.any(), "rounding has none"
        assert gate.reference64.any()
