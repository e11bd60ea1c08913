"""The gradient of the input leaves the skip path out."""

import torch
from torch import nn


class SkipGain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, skip):
        ctx.save_for_backward(x, scale)
        return torch.tanh(x * scale) + x * skip

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        inner = grad_output * (1 - torch.tanh(x * scale) ** 2)
        grad_x = inner * scale
        return grad_x, (inner * x).sum((0, 1)), (grad_output * x).sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return SkipGain.apply(x, self.scale, self.skip)
