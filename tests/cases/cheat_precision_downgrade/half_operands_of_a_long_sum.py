"""Rounds both operands to float16 and differentiates the exact product.

Attack surface: a bound that grows with the length of a sum, in which the errors of 4096 operands cancel.
Why it fails: the error is that of the float64 reference on operands rounded to float16.
"""

import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.half().float() @ b.half().float()

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return grad_output @ b.T, a.T @ grad_output


class ModelNew(nn.Module):
    def forward(self, a, b):
        return Product.apply(a, b)
