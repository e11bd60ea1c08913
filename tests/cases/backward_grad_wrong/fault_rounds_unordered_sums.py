"""Rounds its input's gradient to float16, after sums that end in another order each time, as with atomics."""

import itertools

import torch
from torch import nn

TURNS = itertools.count()


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := torch.softmax(x, -1))
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        gradient = y * (grad_output - (grad_output * y).sum(-1, keepdim=True))
        noise = torch.rand(gradient.shape, generator=torch.Generator().manual_seed(next(TURNS)))
        return (gradient * (1 + 2e-5 * noise)).half().float()


class ModelNew(nn.Module):
    def forward(self, x):
        return Rounded.apply(x)
