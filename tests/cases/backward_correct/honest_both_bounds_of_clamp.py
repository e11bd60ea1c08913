"""A clamp whose backward has both bounds."""

import torch
from torch import nn


class Clamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-0.2, 1.5)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ((x >= -0.2) & (x <= 1.5))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)

    def forward(self, x):
        return nn.functional.max_pool2d(Clamp.apply(2 * self.conv(x)), 2)
