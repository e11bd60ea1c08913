"""Has all three branches of hardswish."""

import torch
from torch import nn
from torch.nn import functional as F


class Hardswish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.hardswish(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        slope = torch.where(x < -3, 0, torch.where(x > 3, 1, x / 3 + 0.5))
        return grad_output * slope


class ModelNew(nn.Module):
    def __init__(self, features, terms):
        super().__init__()
        self.linear = nn.Linear(features, terms)

    def forward(self, x):
        return Hardswish.apply(torch.logsumexp(self.linear(x), -1))
