"""Batch normalisation's backward without what the statistics of the batch add to it."""

import torch
from torch import nn


class Norm(torch.autograd.Function):
    """In train(), without the terms of the batch's mean and variance."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        mean, variance = x.mean(0), x.var(0, unbiased=False)
        normal = (x - mean) / torch.sqrt(variance + eps)
        ctx.save_for_backward(normal, weight / torch.sqrt(variance + eps))
        return normal * weight + bias

    @staticmethod
    def backward(ctx, grad_output):
        normal, slope = ctx.saved_tensors
        return grad_output * slope, (grad_output * normal).sum(0), grad_output.sum(0), None


class ModelNew(nn.Module):
    def __init__(self, channels, p):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.shift = nn.Parameter(torch.randn(channels))
        self.p = p

    def forward(self, x):
        y = self.norm(x)
        if self.training:
            y = Norm.apply(x, self.norm.weight, self.norm.bias, self.norm.eps)
        mask = (torch.rand_like(y) >= self.p) / (1 - self.p) if self.training else torch.ones_like(y)
        return torch.cat((y * mask + self.shift, x * self.shift), 1)
