"""Multiplies what lies before each element by what lies behind it."""

import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.prod(-1)

    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        one = torch.ones_like(x[:, :1])
        before = torch.cat([one, x[:, :-1]], -1).cumprod(-1)
        behind = torch.cat([one, x.flip(-1)[:, :-1]], -1).cumprod(-1).flip(-1)
        return grad_y[:, None] * before * behind


class ModelNew(nn.Module):
    def forward(self, x):
        return Product.apply(x)
