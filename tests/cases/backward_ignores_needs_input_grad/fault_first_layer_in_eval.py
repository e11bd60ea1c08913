"""In eval(), has no graph where the input needs no gradient, as that of a first layer."""

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
        if self.training or x.requires_grad:
            return ScaleBiasReLU.apply(x, self.scale, self.bias)
        with torch.no_grad():
            return torch.relu(x * self.scale + self.bias)
