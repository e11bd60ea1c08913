"""Gradients that are the derivatives of a reference's outputs, and references that cannot be asked."""

from types import SimpleNamespace

import pytest
import torch

from grader.errors import ReferenceRefused
from grader.grading.oracle.derivatives import are_derivatives


class Oracle:
    """A reference that computes x ** 3 in float64, and may refuse."""

    def __init__(self, *, refuses=False, asserts=False, in_float64=True):
        self._refuses, self._asserts, self._in_float64 = refuses, asserts, in_float64

    def traits(self, case):
        return SimpleNamespace(asserts=self._asserts)

    def runs_float64(self, case):
        return self._in_float64

    def ask(self, case, passes):
        for one in passes:
            if self._refuses:
                raise ReferenceRefused("not these")
            yield SimpleNamespace(outputs={"output": one.inputs[0].double() ** 3})


@pytest.fixture
def case():
    x, grad_output = torch.randn(2, 40, 8)
    return SimpleNamespace(inputs=(x,), state={}, training=True, cotangents={"output": grad_output})


@pytest.mark.parametrize(("factor", "are"), [(1.0, True), (1.0005, True), (1.1, False), (0.0, False)])
def test_a_derivative_predicts_how_outputs_change(case, factor, are):
    gradient = factor * 3 * case.inputs[0] ** 2 * case.cotangents["output"]
    assert are_derivatives(Oracle(), case, {"input[0]": gradient, "weight": torch.ones(3)}) == are


@pytest.mark.parametrize("how", [{"refuses": True}, {"asserts": True}, {"in_float64": False}])
def test_a_reference_that_may_not_be_asked_tells_nothing(case, how):
    gradient = 3 * case.inputs[0] ** 2 * case.cotangents["output"]
    assert not are_derivatives(Oracle(**how), case, {"input[0]": gradient})
