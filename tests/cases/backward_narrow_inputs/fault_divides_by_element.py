"""Divides the product by each element, which may be zero."""

import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.prod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        x, y = ctx.saved_tensors
        return (grad_y * y)[:, None] / x


class ModelNew(nn.Module):
    def forward(self, x):
        return Product.apply(x)
