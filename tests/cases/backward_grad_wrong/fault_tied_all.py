"""At a tie, the whole gradient goes to each of the tied elements of a window."""

import torch
from torch import nn


class Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        windows = x.unflatten(-1, (-1, 4))
        pooled = windows.amax(-1)
        ctx.save_for_backward(x, y, windows == pooled[..., None])
        return pooled, torch.maximum(x, y)

    @staticmethod
    def backward(ctx, grad_pooled, grad_largest):
        x, y, tied = ctx.saved_tensors
        grad_x = (tied * grad_pooled[..., None]).flatten(-2)
        return grad_x + (x > y) * grad_largest, (x <= y) * grad_largest


class ModelNew(nn.Module):
    def forward(self, x, y):
        return Largest.apply(x, y)
