"""The honest twin: an output that is not used contributes nothing."""

import torch
from torch import nn


class SineAndSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        ctx.set_materialize_grads(False)
        hidden = x * scale
        return torch.sin(hidden), hidden * hidden

    @staticmethod
    def backward(ctx, grad_sine, grad_square):
        x, scale = ctx.saved_tensors
        hidden = x * scale
        grad = torch.zeros_like(x)
        if grad_sine is not None:
            grad = grad + grad_sine * torch.cos(hidden)
        if grad_square is not None:
            grad = grad + grad_square * 2 * hidden
        return grad * scale, (grad * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return SineAndSquare.apply(x, self.scale)
