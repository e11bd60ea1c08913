"""Saves the input only where its own gradient is wanted, and reads it for another one."""

import torch
from torch import nn


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.save_for_backward(x if ctx.needs_input_grad[0] else None, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        saved, scale, y = ctx.saved_tensors
        grad = grad_output * (y > 0)
        return grad * scale, (grad * saved.view_as(y)).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
