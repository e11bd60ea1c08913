"""Forgets that the limit divides what it limits, in its own gradient."""

import torch
from torch import nn


class SoftCap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap):
        limited = torch.tanh(x / cap)
        ctx.save_for_backward(limited)
        return cap * limited

    @staticmethod
    def backward(ctx, grad):
        (limited,) = ctx.saved_tensors
        return grad * (1 - limited * limited), (grad * limited).sum()


class ModelNew(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.linear = nn.Linear(features, classes)
        self.cap = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return SoftCap.apply(self.linear(x), self.cap)
