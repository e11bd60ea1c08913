"""A forward in float64 is the function that it is in the problem's own dtype."""

import pytest
import torch
from torch import nn

from grader.protocol.fewer_bits import of_bits
from grader.worker.float64_forward import keep_function

DRAWS = {
    "randn": lambda x: torch.randn(x.shape, dtype=x.dtype),
    "rand": lambda x: torch.rand(x.shape, dtype=x.dtype),
    "randn_like": torch.randn_like,
    "rand_like": torch.rand_like,
    "normal": lambda x: torch.normal(x, 1.0),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "uniform_": lambda x: torch.empty_like(x).uniform_(-1, 1),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(x.sigmoid()),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "float32": lambda x: torch.randn(x.shape) + x,
    "dropout": lambda x: nn.functional.dropout(x),
}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def in_float64(function, x, dtype=torch.float32, creates=False):
    model = Function(function)
    keep_function(model, dtype, creates=creates)
    return model(x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", DRAWS)
def test_it_draws_the_same_numbers(name, dtype):
    x = torch.randn(100).to(dtype)
    torch.manual_seed(3)
    drawn = DRAWS[name](x)
    torch.manual_seed(3)
    exact = in_float64(DRAWS[name], x, dtype)
    assert exact.dtype is torch.float64
    torch.testing.assert_close(exact, drawn.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_sees_the_limits_of_the_problems_dtype(dtype):
    def eps(x):
        return x.new_tensor([torch.finfo(x.dtype).eps, torch.finfo(torch.float16).eps, torch.finfo().eps])

    found = in_float64(eps, torch.zeros(1), dtype)
    assert found.tolist() == [torch.finfo(dtype).eps, torch.finfo(torch.float16).eps, torch.finfo().eps]
    assert torch.finfo(torch.float64).eps < 1e-15


def test_roundings_keep_the_bits_that_they_ask_for():
    """They go on below the forward, where `torch.finfo` is that of the problem's dtype."""
    x = torch.randn(100).double()
    assert torch.equal(in_float64(lambda y: of_bits(y, 8, "to even"), x), of_bits(x, 8, "to even"))


def test_what_it_creates_is_float64_where_asked():
    assert in_float64(lambda x: torch.zeros(3), torch.zeros(1)).dtype is torch.float32
    assert in_float64(lambda x: torch.zeros(3), torch.zeros(1), creates=True).dtype is torch.float64
