"""A weighted sum whose gradient is summed in another order each time, as by cuDNN."""

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


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return Scale.apply(x, self.scale)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(4096, 8)]
