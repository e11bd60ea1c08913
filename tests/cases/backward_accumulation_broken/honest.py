"""The honest twin: a workspace for what stays inside."""

import torch
from torch import nn

BUFFERS = {}


def workspace(like):
    """The same memory for the same size."""
    return BUFFERS.setdefault(like.shape, torch.empty_like(like))


class ScaleBiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.save_for_backward(x, scale, y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        x, scale, y = ctx.saved_tensors
        grad = workspace(x)
        torch.mul(grad_output, y > 0, out=grad)
        return grad * scale, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
