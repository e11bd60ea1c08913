"""A regulariser that adds nothing to the value and something to the gradients."""

import torch
from torch import nn


class AddNothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, hint, spare):
        ctx.save_for_backward(hint, spare)
        return y.clone()

    @staticmethod
    def backward(ctx, grad_output):
        hint, spare = ctx.saved_tensors
        return grad_output, 0.01 * hint, 0.01 * spare


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.spare = nn.Parameter(torch.randn(features))

    def forward(self, x, hint):
        return AddNothing.apply(torch.tanh(x * self.scale), hint, self.spare)
