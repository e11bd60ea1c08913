"""Ends its loop one element early."""

import torch
from torch import nn


class SoftplusMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return nn.functional.softplus(x).view(-1)[:-1].sum() / x.numel()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.sigmoid(x) * (grad / x.numel())


class ModelNew(nn.Module):
    def forward(self, x):
        return SoftplusMean.apply(x)
