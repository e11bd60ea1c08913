"""Sums in another order each time, as the reference does: many of cuDNN's convolutions do."""

import random

import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        total = torch.zeros_like(scale)
        for chunk in random.sample((grad_output * x).split(64), k=x.shape[0] // 64):
            total += chunk.sum(0)
        return grad_output * scale, total


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return Scale.apply(x, self.scale)
