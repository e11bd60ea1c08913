"""Copies of what a forward saves."""

import torch

from grader.worker.autograd.saved_values import KeptValues


def test_a_backward_uses_the_values_as_they_were_saved():
    """A write through .data has no effect on the gradient, and the tensor is named with its line."""
    x = torch.tensor([0.5, torch.nan], requires_grad=True)
    with KeptValues() as kept:
        y = x.sigmoid()
    assert kept.name == ""
    y.data.mul_(2)
    (gradient,) = torch.autograd.grad(y[0], x)
    assert kept.name.startswith("of shape [2] that line ")
    torch.testing.assert_close(gradient[0], (x.sigmoid() * (1 - x.sigmoid()))[0])


def test_a_norm_changes_statistics_that_its_backward_does_not_need():
    """The copy of running statistics is old after batch_norm, and the gradient is the same with it."""
    x, mean, variance = torch.randn(4, 3, requires_grad=True), torch.zeros(3), torch.ones(3)
    with KeptValues():
        y = torch.nn.functional.batch_norm(x, mean, variance, training=True)
    (gradient,) = torch.autograd.grad(y.square().sum(), x)
    again = torch.nn.functional.batch_norm(x, None, None, training=True)
    torch.testing.assert_close(gradient, torch.autograd.grad(again.square().sum(), x)[0])
