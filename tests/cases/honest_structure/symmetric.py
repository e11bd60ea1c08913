"""Reads what lies on and above the diagonals, and mirrors it."""

import torch
from torch import nn


def whole(value):
    return value.triu() + value.triu(1).T


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return whole(a) @ whole(b)

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return grad_output @ whole(b), whole(a) @ grad_output


class ModelNew(nn.Module):
    def forward(self, a, b):
        return Product.apply(a, b)
