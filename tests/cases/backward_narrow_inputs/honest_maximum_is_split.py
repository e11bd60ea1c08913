"""Elements that tie for the maximum share its gradient."""

import torch
from torch import nn


class Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        largest = y.amax((2, 3), keepdim=True)
        ctx.save_for_backward(y, largest)
        return largest[:, :, 0, 0]

    @staticmethod
    def backward(ctx, grad_output):
        y, largest = ctx.saved_tensors
        at = (y == largest).to(y.dtype)
        return at * (grad_output[:, :, None, None] / at.sum((2, 3), keepdim=True))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return Largest.apply(x * self.scale)
