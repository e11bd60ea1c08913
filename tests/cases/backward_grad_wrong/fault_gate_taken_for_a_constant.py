"""Differentiates silu(z) = z sigmoid(z) as if the sigmoid did not depend on z."""

import torch
from torch import nn


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        z = x * scale
        ctx.save_for_backward(x, scale, z)
        return z * torch.sigmoid(z)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, z = ctx.saved_tensors
        grad = grad_output * torch.sigmoid(z)
        return grad * scale, (grad * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return Gated.apply(x, self.scale)
