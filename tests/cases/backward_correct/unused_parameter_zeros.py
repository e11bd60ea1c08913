"""The same, with zeros in place of None."""

import torch
from torch import nn


class TanhScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, hint, spare):
        y = torch.tanh(x * scale)
        ctx.save_for_backward(x, scale, y, hint, spare)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y, hint, spare = ctx.saved_tensors
        grad = grad_output * (1 - y * y)
        return grad * scale, (grad * x).sum(0), torch.zeros_like(hint), torch.zeros_like(spare)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.spare = nn.Parameter(torch.randn(features))

    def forward(self, x, hint):
        return TanhScale.apply(x, self.scale, hint, self.spare)
