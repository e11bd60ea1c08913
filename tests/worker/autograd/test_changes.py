"""One kind of operator rounds its results, in a forward and in a backward; the others do not."""

import pytest
import torch

from grader.protocol import Rounding
from grader.worker.autograd.changes import RoundedResults


def values():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(6, 6, generator=generator, dtype=torch.float64) for _ in range(3)]


@pytest.mark.parametrize(
    ("turn", "name", "rounded"),
    [
        (0, "mm", lambda x, w: torch.tanh(brief(x @ w))),
        (1, "tanh", lambda x, w: brief(torch.tanh(x @ w))),
        (2, "", lambda x, w: torch.tanh(x @ w)),
    ],
)
def test_the_kind_whose_turn_it_is_rounds(turn, name, rounded):
    x, w, _ = values()
    with RoundedResults(Rounding(turn=turn, bits=8)) as rounding:
        found = torch.tanh(x @ w)
    assert rounding.name == name
    assert torch.equal(found, rounded(x, w))


def test_a_backward_rounds_what_it_computes():
    x, w, g = values()
    x.requires_grad_()
    y = torch.tanh(x @ w)
    with RoundedResults(Rounding(turn=0, bits=8)) as rounding:
        (found,) = torch.autograd.grad(y, x, g)
    assert rounding.name == "tanh_backward"
    y = y.detach()
    torch.testing.assert_close(found, brief(g * (1 - y * y)) @ w.T, rtol=1e-12, atol=1e-12)


def test_products_round_what_they_multiply():
    x, w, g = values()
    x.requires_grad_()
    with RoundedResults(Rounding(bits=8)) as rounding:
        y = torch.tanh(x @ w)
    assert rounding.name == "mm"
    assert torch.equal(y, torch.tanh(brief(x) @ brief(w)))
    with RoundedResults(Rounding(bits=8)):
        (found,) = torch.autograd.grad(y, x, g)
    torch.testing.assert_close(found, brief(g * (1 - y * y)).detach() @ brief(w).T, rtol=1e-12, atol=1e-12)
    with RoundedResults(Rounding(bits=8)) as rounding:
        assert torch.equal(torch.tanh(w), w.tanh())
    assert rounding.name == ""


def test_bits_may_be_cut_off():
    x, _, _ = values()
    with RoundedResults(Rounding(turn=0, bits=11, cut=True)):
        found = x + 0
    assert (found.abs() <= x.abs()).all()
    assert ((found - x).abs() < x.abs() * 2.0**-10).all()


def test_rounding_does_not_import_the_compiler(beside_torch):
    code = """
import sys, torch
from grader.protocol import Rounding
from grader.worker.autograd.changes import RoundedResults
with RoundedResults(Rounding(turn=0, bits=8)):
    torch.randn(4, 4) @ torch.randn(4, 4)
print([name for name in ("torch._dynamo", "sympy", "triton") if name in sys.modules])
"""
    assert beside_torch.run(code).strip() == "[]"


def brief(value):
    return value.to(torch.bfloat16).double()
