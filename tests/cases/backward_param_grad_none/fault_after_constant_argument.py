"""The gradient of the argument behind a constant one is forgotten."""

import torch
from torch import nn


class ScaleLeaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope, multiplier):
        z = x * multiplier
        ctx.save_for_backward(x, multiplier)
        ctx.slope = slope
        return torch.where(z > 0, z, z * slope)

    @staticmethod
    def backward(ctx, grad_output):
        x, multiplier = ctx.saved_tensors
        grad = torch.where(x * multiplier > 0, grad_output, grad_output * ctx.slope)
        return grad * multiplier, None, None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = nn.Linear(features, features)
        self.multiplier = nn.Parameter(torch.randn(features))
        self.last = nn.Linear(features, 4)

    def forward(self, x):
        return self.last(ScaleLeaky.apply(self.first(x), 0.1, self.multiplier))
