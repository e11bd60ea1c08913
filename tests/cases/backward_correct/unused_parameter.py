"""Parameter and input that nobody uses: None on both sides."""

import torch
from torch import nn


class TanhScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        y = torch.tanh(x * scale)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        grad = grad_output * (1 - y * y)
        return grad * scale, (grad * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.spare = nn.Parameter(torch.randn(features))

    def forward(self, x, hint):
        return TanhScale.apply(x, self.scale)
