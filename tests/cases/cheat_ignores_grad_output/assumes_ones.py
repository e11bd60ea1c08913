"""Has the gradient of the sum ready.

Attack surface: backward checks by .sum().backward().
Why it fails: grad_output is random.
"""

import torch
from torch import nn


class Ones(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = x * scale + bias
        live = (y > 0).float()
        ctx.save_for_backward(live * scale, (live * x).sum((0, 1)), live.sum((0, 1)))
        return torch.relu(y)

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return Ones.apply(x, self.scale, self.bias)
