"""A buffer that is read only."""

import torch
from torch import nn


class OffsetTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, offset, scale):
        y = torch.tanh((x + offset) * scale)
        ctx.save_for_backward(x, offset, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, offset, scale, y = ctx.saved_tensors
        grad = grad_output * (1 - y * y)
        return grad * scale, None, (grad * (x + offset)).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("offset", torch.randn(features))
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return OffsetTanh.apply(x, self.offset, self.scale)
