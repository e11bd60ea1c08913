"""All of the gradient is written, and nothing else."""

import ctypes

import torch
from torch import nn


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        x = x.contiguous()
        y = torch.relu(x * scale + bias)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        g = grad_output * (y > 0)
        grad = g * scale
        ctypes.c_float.from_address(grad.data_ptr() + grad.nbytes - 4).value = float(grad.view(-1)[-1])
        return grad, (g * x).sum((0, 1)), g.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
