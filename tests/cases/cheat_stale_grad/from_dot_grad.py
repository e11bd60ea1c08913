"""Its backward returns whatever stands in .grad.

Attack surface: leaves that the reference shares.
Why it fails: the reference's leaves are in another process; here .grad is empty.
"""

import torch
from torch import nn


class Lazy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        ctx.leaves = x, scale, bias
        return torch.relu(x * scale + bias)

    @staticmethod
    def backward(ctx, grad):
        return tuple(leaf.grad for leaf in ctx.leaves)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return Lazy.apply(x, self.scale, self.bias)
