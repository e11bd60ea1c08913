"""It scales grad_output down where the input is positive, and not where it is negative."""

import torch
from torch import nn


class LeakyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x > 0, x, 0.01 * x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.where(x < 0, grad_output, 0.01 * grad_output)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3)
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return LeakyReLU.apply(self.conv(x) * self.scale)
