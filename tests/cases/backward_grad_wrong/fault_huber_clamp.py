"""Clamps the derivative of a Huber loss at another delta."""

import torch
from torch import nn


class K(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        d = x - y
        ctx.save_for_backward(d)
        a = d.abs()
        return torch.where(a < 0.5, 0.5 * d * d, 0.5 * (a - 0.25)).mean()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        w = d.clamp(-1, 1) / d.numel() * g
        return w, -w


class ModelNew(nn.Module):
    def forward(self, x, y):
        return K.apply(x, y)
