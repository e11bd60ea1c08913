"""GELU's derivative subtracts x times the normal density where it is to be added."""

import math

import torch
from torch import nn


class GeluScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2))) * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        below = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return grad_output * scale * (below - x * density), (grad_output * x * below).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return GeluScale.apply(self.linear(x), self.scale)
