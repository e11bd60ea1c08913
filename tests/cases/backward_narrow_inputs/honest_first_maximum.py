"""One of the elements that tie for the maximum has all of its gradient."""

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
        at = torch.zeros_like(y).flatten(2)
        at = at.scatter(2, y.flatten(2).argmax(2, keepdim=True), 1).view_as(y)
        return at * grad_output[:, :, None, None]


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return Largest.apply(x * self.scale)
