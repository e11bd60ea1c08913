"""The weight's gradient is x^T g, as if the weight were stored the other way round."""

import torch
from torch import nn


class LinearLike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight, x.t() @ grad_output, grad_output.sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = nn.Linear(features, features)
        self.multiplier = nn.Parameter(torch.randn(features))
        self.last = nn.Linear(features, 4)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.first(x) * self.multiplier, 0.1)
        return LinearLike.apply(x, self.last.weight, self.last.bias)
