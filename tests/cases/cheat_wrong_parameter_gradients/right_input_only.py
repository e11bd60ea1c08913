"""Right gradient of the input, the parameters' ones are random.

Attack surface: checks of the input's gradient alone.
Why it fails: all gradients are compared.
"""

import torch
from torch import nn


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = x * scale + bias
        ctx.save_for_backward(y, scale)
        return torch.relu(y)

    @staticmethod
    def backward(ctx, grad):
        y, scale = ctx.saved_tensors
        return grad * (y > 0) * scale, torch.randn_like(scale), torch.randn_like(scale)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return Half.apply(x, self.scale, self.bias)
