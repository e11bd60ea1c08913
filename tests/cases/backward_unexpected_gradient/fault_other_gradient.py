"""A gradient for the target, and not even a right one."""

import torch
from torch import nn


class ScaledDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, target):
        difference = x * scale - target
        ctx.save_for_backward(x, scale, difference)
        return difference.square()

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, difference = ctx.saved_tensors
        grad = 2 * grad_output * difference
        return grad * scale, (grad * x).sum(0), grad


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x, target):
        return ScaledDistance.apply(x, self.scale, target)
