"""Whether gradients can be differentiated again."""

import pytest
import torch
from torch.autograd.function import once_differentiable

from grader.worker.autograd import graph


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


class Once(Square):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return 2 * ctx.saved_tensors[0] * grad_output


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad_output):
        return 2 * grad_output

    @staticmethod
    def backward(ctx, grad_output):
        raise NotImplementedError


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return Refuses.apply(grad_output)


def asked(function, *, trusts_pytorch):
    x = torch.randn(4, requires_grad=True)
    grad_output = torch.randn(4).requires_grad_()
    (grad,) = torch.autograd.grad(function(x), x, grad_output, create_graph=True)
    return graph.differentiable_again({"x": grad}, {"x": x}, [grad_output], trusts_pytorch=trusts_pytorch)


@pytest.mark.parametrize("trusts_pytorch", [False, True])
@pytest.mark.parametrize(("function", "can"), [(torch.sin, True), (Square.apply, True), (Once.apply, False)])
def test_whether_gradients_can_be_differentiated_again(function, can, trusts_pytorch):
    assert asked(function, trusts_pytorch=trusts_pytorch) == can


@pytest.mark.parametrize("trusts_pytorch", [False, True])
def test_what_a_derivative_raises_is_raised(trusts_pytorch):
    with pytest.raises(NotImplementedError):
        asked(Twice.apply, trusts_pytorch=trusts_pytorch)


def test_pytorchs_own_operators_are_not_run_if_they_are_trusted(monkeypatch):
    ran = []
    monkeypatch.setattr(graph, "gradients", lambda *_, **__: ran.append(True))
    assert asked(torch.sin, trusts_pytorch=True)
    assert not ran
    assert asked(torch.sin, trusts_pytorch=False)
    assert ran


@pytest.mark.parametrize("trusts_pytorch", [False, True])
def test_a_sparse_gradient_is_differentiated_as_a_dense_one(trusts_pytorch):
    index = torch.tensor([[0, 2], [1, 1]])
    table = torch.randn(2, 3, requires_grad=True)
    grad_output = torch.randn(2, 2).requires_grad_()
    output = torch.gather(table, 1, index, sparse_grad=True)
    (grad,) = torch.autograd.grad(output, table, grad_output, create_graph=True)
    assert grad.layout == torch.sparse_coo
    assert graph.differentiable_again({"x": grad}, {"x": table}, [grad_output], trusts_pytorch=trusts_pytorch)


def test_a_sparse_gradient_passes_the_hook_that_makes_others_contiguous():
    table = torch.randn(5, 3, requires_grad=True)
    output = torch.nn.functional.embedding(torch.tensor([1, 1, 4]), 2 * table, sparse=True)
    grad_output = torch.randn(3, 3)
    with graph.contiguous_grads([(output, grad_output)]):
        (grad,) = torch.autograd.grad(output, table, grad_output)
    torch.testing.assert_close(grad.to_dense()[4], 2 * grad_output[2])
