"""The softmax is differentiated at the right values, and GELU by the derivative of its tanh approximation."""

import math

import torch
from torch import nn


class GeluSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        y = torch.softmax(z * 0.5 * (1 + torch.erf(z / math.sqrt(2))), dim=1)
        ctx.save_for_backward(z, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        z, y = ctx.saved_tensors
        grad = y * (grad_output - (grad_output * y).sum(1, keepdim=True))
        scale = math.sqrt(2 / math.pi)
        tanh = torch.tanh(scale * (z + 0.044715 * z**3))
        slope = scale * (1 + 3 * 0.044715 * z * z)
        return grad * (0.5 * (1 + tanh) + 0.5 * z * (1 - tanh * tanh) * slope)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        return GeluSoftmax.apply(self.linear(x))
