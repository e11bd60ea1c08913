"""No gradient at the edges of a clamp, where PyTorch's has one."""

import torch
from torch import nn


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x.clamp(16, 235) * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return grad * scale * ((x > 16) & (x < 235)), (grad * x.clamp(16, 235)).sum(0)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels) + 0.5)

    def forward(self, x):
        return Clip.apply(x, self.scale)
