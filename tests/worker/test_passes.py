"""Calls of a model's forward: what they return is computed when they end."""

import pytest
import torch

from grader import protocol as p
from grader.worker.compile.importing import Builder
from grader.worker.passes import call_forward
from grader.worker.session import Inputs, Session


def returned(forward, x):
    session, module = Session(Builder()), torch.nn.Module()
    module.forward = forward
    session.add_model("m", module)
    session.inputs["a"] = Inputs([x], {})
    return call_forward(session, p.Forward(model="m", inputs="a", tape="a"))["output"]


@pytest.mark.parametrize(
    ("forward", "due"),
    [
        (torch._neg_view, torch.neg),
        (torch.conj, torch.conj_physical),
        (lambda x: x.conj().imag, lambda x: -x.imag),
        (lambda x: torch._efficientzerotensor(x.shape), lambda x: torch.zeros(x.shape)),
    ],
)
def test_an_output_that_is_computed_lazily_is_computed_in_the_call(forward, due):
    x = torch.randn(4, 3, dtype=torch.complex64)
    y = returned(forward, x)
    assert not any((y.is_neg(), y.is_conj(), y._is_zerotensor()))
    torch.testing.assert_close(y, due(x))


def test_any_other_output_is_the_model_s_own():
    x = torch.randn(4, 3)
    assert returned(lambda x: x, x) is x
