"""Writes the sums into copies of the buffers that it returns."""

import torch
from torch import nn


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        grad = grad_output * (y > 0)
        grad_scale, grad_bias = torch.zeros_like(scale), torch.zeros_like(scale)
        rows = grad.reshape(-1, scale.numel())
        torch.sum(rows * x.reshape(rows.shape), 0, out=grad_scale.clone())
        torch.sum(rows, 0, out=grad_bias.clone())
        return grad * scale, grad_scale, grad_bias


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
