"""Stochastic depth that was left on: with probability 0.3 the input counts as zero."""

import torch
from torch import nn


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        output = torch.relu(x * scale + bias)
        ctx.save_for_backward(x, scale, output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, output = ctx.saved_tensors
        grad = grad_output * (output > 0)
        grad_x = grad * scale
        return grad_x, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        x = x * (torch.rand(()) > 0.3)
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
