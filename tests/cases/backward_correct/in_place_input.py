"""In place on its input, as the reference, with mark_dirty."""

import torch
from torch import nn


class ScaleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x.clone(), scale)
        ctx.mark_dirty(x)
        return x.mul_(scale)

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * scale, (grad_output * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.tanh(ScaleInPlace.apply(x, self.scale))
