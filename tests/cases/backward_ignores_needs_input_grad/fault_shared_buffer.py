"""The masked gradient is left in the buffer of the input's gradient, which is not there when the input is frozen."""

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
        grad_x = torch.mul(grad_output, y > 0) if ctx.needs_input_grad[0] else grad_output
        grad_scale, grad_bias = (grad_x * x).sum((0, 1)), grad_x.sum((0, 1))
        return grad_x * scale, grad_scale, grad_bias


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
