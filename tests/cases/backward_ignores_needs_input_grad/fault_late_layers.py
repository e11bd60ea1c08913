"""In the last two layers, a bias gets no gradient where its weight needs none: one of many operands."""

import torch
from torch import nn


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return grad_output @ weight, None, None
        return grad_output @ weight, grad_output.T @ x, grad_output.sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(9))

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = torch.tanh(layer(x) if index < 7 else Linear.apply(x, layer.weight, layer.bias))
        return x
