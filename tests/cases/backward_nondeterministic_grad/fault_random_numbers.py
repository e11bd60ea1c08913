"""Loses a gradient with probability 0.3, by random numbers of PyTorch's, which a fixed seed would always hide."""

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
        grad_x[0] *= torch.rand(()) > 0.3
        return grad_x, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
