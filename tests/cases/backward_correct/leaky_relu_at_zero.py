"""The non-smooth point: at exactly zero the slope is that of the negative side."""

import torch
from torch import nn


class LeakyScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        activated = torch.where(x > 0, x, 0.2 * x)
        ctx.save_for_backward(x, scale)
        return activated * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        activated = torch.where(x > 0, x, 0.2 * x)
        grad_x = grad_output * scale * torch.where(x > 0, 1.0, 0.2)
        return grad_x, (grad_output * activated).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return LeakyScale.apply(x, self.scale)
