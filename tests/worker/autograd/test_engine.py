"""The worker's calls of the engine equal those of torch.autograd, and do not import the tools of torch.compile."""

import pytest
import torch

from grader.worker.autograd import engine


def graph():
    x, unused = torch.randn(3, 4, requires_grad=True), torch.randn(2, requires_grad=True)
    return x, unused, [(x * x).sum(0), x.exp()]


def test_gradients_are_those_of_autograd():
    x, unused, outputs = graph()
    given = [torch.randn_like(output) for output in outputs]
    actual = engine.gradients(outputs, [x, unused], given, retain_graph=True)
    expected = torch.autograd.grad(outputs, [x, unused], given, allow_unused=True)
    assert torch.equal(actual[0], expected[0])
    assert actual[1] is expected[1] is None


def test_gradients_can_be_differentiated_again():
    x, _, outputs = graph()
    (first,) = engine.gradients(outputs[1:], [x], [torch.ones(3, 4)], retain_graph=True, create_graph=True)
    (second,) = engine.gradients([first], [x], [torch.ones(3, 4)])
    assert torch.equal(second, x.exp())


def test_accumulating_adds():
    x, unused, outputs = graph()
    for times in (1, 2):
        engine.accumulate(outputs[1:], [torch.ones(3, 4)], retain_graph=True)
        assert torch.equal(x.grad, times * x.exp())
    assert unused.grad is None


def test_a_grad_output_of_another_shape_is_refused():
    x, _, outputs = graph()
    with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
        engine.gradients(outputs[1:], [x], [torch.ones(4, 4)])


def test_the_engine_does_not_import_sympy(beside_torch):
    code = (
        "import sys, torch; from grader.worker.autograd import engine; x = torch.ones(2, requires_grad=True); "
        "engine.gradients([x * 2], [x], [x]); engine.accumulate([x * 2], [x]); print('sympy' in sys.modules)"
    )
    assert beside_torch.run(code).strip() == "False"
