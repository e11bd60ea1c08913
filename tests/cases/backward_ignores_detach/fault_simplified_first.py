"""Differentiates c (2c + b + 1), where the reference detaches one of the factors."""

import torch
from torch import nn


class ResidualChain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, c, bias):
        ctx.save_for_backward(c, bias)
        return c * (2 * c + bias + 1)

    @staticmethod
    def backward(ctx, grad_output):
        c, bias = ctx.saved_tensors
        return grad_output * (4 * c + bias + 1), (grad_output * c).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return ResidualChain.apply(self.linear(x), self.bias)
