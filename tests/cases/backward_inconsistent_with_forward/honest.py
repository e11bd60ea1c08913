"""The mask that forward drew, with its scale."""

import torch
from torch import nn


class ScaleDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, training):
        mask = 2.0 * (torch.rand_like(x) < 0.5) if training else torch.ones_like(x)
        ctx.save_for_backward(x, scale, mask)
        return x * scale * mask

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, mask = ctx.saved_tensors
        grad = grad_output * mask
        return grad * scale, (grad * x).sum(0), None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return ScaleDropout.apply(x, self.scale, self.training)
