"""A workspace that is handed out again for every call of the same size."""

import torch
from torch import nn

BUFFERS = {}


def workspace(like):
    """The same memory for the same size."""
    if like.shape not in BUFFERS:
        BUFFERS[like.shape] = torch.empty_like(like)
    return BUFFERS[like.shape].view(like.shape)


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
        grad_x = workspace(x)
        torch.mul(grad, scale, out=grad_x)
        return grad_x, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasRelu.apply(x, self.scale, self.bias)
