"""The steps of a function make what the function makes, and the same gradients."""

import pytest
import torch
from torch.nn import functional

from grader.worker.autograd.substitutes import substituted


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.layer_norm(x, x.shape[1:], drawn(*x.shape[1:]), drawn(*x.shape[1:]), 1e-3),
        lambda x: functional.layer_norm(x, x.shape[-1:]),
        lambda x: functional.group_norm(x, 2, drawn(4), drawn(4)),
        lambda x: functional.batch_norm(x, None, None, drawn(4), drawn(4), training=True),
        lambda x: functional.batch_norm(x, drawn(4), drawn(4).square(), eps=0.1),
        lambda x: functional.instance_norm(x, weight=drawn(4), bias=drawn(4), eps=0.1),
        lambda x: functional.instance_norm(x, drawn(4), drawn(4).square(), use_input_stats=False),
        lambda x: functional.normalize(x),
        lambda x: functional.normalize(x, 3.0, dim=-1, eps=0.1),
        lambda x: functional.scaled_dot_product_attention(x, 2 * x, x),
        lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.3),
        lambda x: functional.scaled_dot_product_attention(x, x, x, drawn(6, 6) > 0),
        lambda x: functional.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], drawn(6, 6), enable_gqa=True),
    ],
)
def test_the_steps_agree_with_the_function(function):
    x = drawn(3, 4, 6, 5).requires_grad_()
    y = function(x)
    with substituted("spelled_out"):
        steps = function(x)
    torch.testing.assert_close(steps, y)
    grad = drawn(*y.shape)
    torch.testing.assert_close(torch.autograd.grad(steps, x, grad), torch.autograd.grad(y, x, grad))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [torch.nn.GRUCell, torch.nn.LSTMCell])
def test_the_steps_of_a_recurrent_cell_agree_with_it(kind, bias):
    cell, x = kind(5, 4, bias=bias).double(), drawn(3, 5)
    states = drawn(3, 4) if kind is torch.nn.GRUCell else (drawn(3, 4), -drawn(3, 4))
    due = cell(x, states)
    with substituted("spelled_out"):
        steps = cell(x, states)
    torch.testing.assert_close(steps, due)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 5, 4, 2)])
def test_the_steps_of_cross_entropy_agree_with_it(shape, weighted, smoothing, reduction):
    x, classes = (
        drawn(*shape).requires_grad_(),
        [extent for at, extent in enumerate(shape) if at != min(len(shape) - 1, 1)],
    )
    target = torch.randint(0, 5, classes, generator=torch.Generator().manual_seed(0))
    if classes:
        target.view(-1)[1] = 9
    how = {"ignore_index": 9, "label_smoothing": smoothing, "reduction": reduction}
    how["weight"] = drawn(5).square() if weighted else None
    y = functional.cross_entropy(x, target, **how)
    with substituted("spelled_out"):
        steps = functional.cross_entropy(x, target, **how)
    torch.testing.assert_close(steps, y)
    grad = drawn(*y.shape)
    torch.testing.assert_close(torch.autograd.grad(steps, x, grad), torch.autograd.grad(y, x, grad))


def test_shares_of_classes_are_left_to_cross_entropy():
    x, shares = drawn(7, 5), drawn(7, 5).softmax(1)
    with substituted("spelled_out"):
        steps = functional.cross_entropy(x, shares, label_smoothing=0.1)
    torch.testing.assert_close(steps, functional.cross_entropy(x, shares, label_smoothing=0.1))
