"""Works in a kept buffer, and returns a copy of it."""

import torch
from torch import nn

KEPT = {}


class ScaleBiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        work = KEPT.setdefault(x.shape, torch.empty_like(x))
        y = torch.relu(torch.mul(x, scale, out=work).add_(bias))
        ctx.save_for_backward(x, scale, y > 0)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, scale, positive = ctx.saved_tensors
        grad = grad * positive
        return grad * scale, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasReLU.apply(x, self.scale, self.bias)
