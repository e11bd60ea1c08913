"""The mean's 1/N is forgotten."""

import torch
from torch import nn


class MeanSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        difference = x - target
        ctx.save_for_backward(difference)
        return difference.square().mean()

    @staticmethod
    def backward(ctx, grad_output):
        (difference,) = ctx.saved_tensors
        grad = grad_output * 2.0 * difference
        return grad, -grad


class ModelNew(nn.Module):
    def forward(self, x, target):
        return MeanSquare.apply(x, target)
