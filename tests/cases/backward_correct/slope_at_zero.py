"""Slope 1 where a difference is 0: another subgradient than PyTorch's 0."""

import torch
from torch import nn


class Absolute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, weight):
        ctx.save_for_backward(x, y, weight)
        return (x - y).abs() * weight

    @staticmethod
    def backward(ctx, grad_output):
        x, y, weight = ctx.saved_tensors
        slope = torch.sign(x - y) + 1 * (x == y)
        grad = grad_output * weight * slope
        return grad, -grad, (grad_output * (x - y).abs()).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x, y):
        return Absolute.apply(x, y, self.weight)
