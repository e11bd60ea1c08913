"""Never reads what lies below the diagonals."""

import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        rows = [a[i, i:] @ b.triu()[i:] for i in range(len(a))]
        return torch.stack(rows).triu()

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        grad = grad_output.triu()
        return grad @ b.triu().T, a.triu().T @ grad


class ModelNew(nn.Module):
    def forward(self, a, b):
        return Product.apply(a, b)
