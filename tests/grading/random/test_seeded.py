"""Which directional derivatives of a forward under one seed can be held against a backward."""

import pytest
import torch

from grader.grading.random.seeded import STEP, STEPS, derivatives

NOISE = 1e-5


def along(function, x, slope):
    return [function(x + factor * STEP * slope) for factor in STEPS]


@pytest.mark.parametrize("function", [torch.tanh, torch.exp, torch.nn.functional.gelu, lambda x: x**3])
def test_derivatives_of_smooth_functions_hold(function):
    x, slope = torch.randn(2, 1000, dtype=torch.float64)
    found, steady = derivatives(along(function, x, slope), NOISE)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(function(x).sum(), x)
    due = gradient * slope
    assert steady.float().mean() > 0.95
    assert torch.allclose(found[steady], due[steady], rtol=5e-3, atol=1e-4)


@pytest.mark.parametrize("x", [0.0, 1e-6, -1e-6, 5e-4, 1.5e-3, -1.9e-3])
def test_none_holds_where_a_non_smooth_point_is_within_the_steps(x):
    hidden = torch.tensor([x, 1.0, -1.0, 2.0], dtype=torch.float64)
    slope = torch.ones(4, dtype=torch.float64)
    _, steady = derivatives(along(torch.relu, hidden, slope), NOISE)
    assert steady.tolist() == [False, True, True, True]
    _, (of_sum,) = derivatives([run.sum(0, keepdim=True) for run in along(torch.relu, hidden, slope)], NOISE)
    assert not of_sum
