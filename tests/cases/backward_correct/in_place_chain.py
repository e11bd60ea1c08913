"""In place on intermediate values, as the reference."""

import torch
from torch import nn


class Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        y = x * scale
        y += 0.5
        mask = y > 0
        y.mul_(torch.where(mask, 2.0, 0.2))
        ctx.save_for_backward(x, scale, mask)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, mask = ctx.saved_tensors
        grad = grad_output * torch.where(mask, 2.0, 0.2)
        return grad * scale, (grad * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return Chain.apply(x, self.scale)
