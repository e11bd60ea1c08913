"""The operands of one product are rounded to float16, the sum is not."""

import torch
from torch import nn


class MatmulTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        y = torch.tanh(x @ weight)
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, y = ctx.saved_tensors
        grad = grad_output * (1 - y * y)
        return grad @ weight.T, x.T.half().float() @ grad.half().float()


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        return MatmulTanh.apply(x, self.weight)
