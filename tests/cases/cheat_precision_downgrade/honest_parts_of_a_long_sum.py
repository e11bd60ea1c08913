"""The twin in float32, which sums in 64 parts, one after the other."""

import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return sum(a[:, at : at + 64] @ b[at : at + 64] for at in range(0, a.shape[1], 64))

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return grad_output @ b.T, a.T @ grad_output


class ModelNew(nn.Module):
    def forward(self, a, b):
        return Product.apply(a, b)
