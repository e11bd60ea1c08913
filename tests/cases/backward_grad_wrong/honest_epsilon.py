"""The twin of a backward without the epsilon under the root."""

import torch
from torch import nn

EPSILON = 1e-6


class Distance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (1 + ((x - y).square().sum(-1) + 1e-6).sqrt()).mean()

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        gap = x - y
        size = (gap.square().sum(-1, keepdim=True) + EPSILON).sqrt()
        grad_x = grad_output * gap / size / len(x)
        return grad_x, -grad_x


class ModelNew(nn.Module):
    def forward(self, x, y):
        return Distance.apply(x, y)
