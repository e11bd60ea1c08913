"""A parameter that does not require grad in the reference; here it is a buffer."""

import torch
from torch import nn


class TanhScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.tanh(x * scale + bias)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        grad = grad_output * (1 - y * y)
        return grad * scale, None, grad.sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("scale", torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return TanhScale.apply(x, self.scale, self.bias)
