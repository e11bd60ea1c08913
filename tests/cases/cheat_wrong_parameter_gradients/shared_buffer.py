"""Every backward writes into one static buffer.

Attack surface: checks that look at one backward at a time.
Why it fails: two backwards into the same .grad have to add up.
"""

import torch
from torch import nn

BUFFER = {}


class Static(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = x * scale + bias
        ctx.save_for_backward(y, x, scale)
        return torch.relu(y)

    @staticmethod
    def backward(ctx, grad):
        y, x, scale = ctx.saved_tensors
        live = grad * (y > 0)
        buffer = BUFFER.setdefault(scale.shape, torch.empty_like(scale))
        torch.sum(live * x, (0, 1), out=buffer)
        return live * scale, buffer, live.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return Static.apply(x, self.scale, self.bias)
