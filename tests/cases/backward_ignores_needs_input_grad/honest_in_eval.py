"""In eval(), the same another way."""

import torch
from torch import nn


class ScaleBiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.save_for_backward(x, scale, y > 0)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, scale, positive = ctx.saved_tensors
        grad = grad * positive
        return grad * scale, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if self.training:
            return ScaleBiasReLU.apply(x, self.scale, self.bias)
        return torch.addcmul(self.bias, x, self.scale).relu()
