"""Ties: the first of equals gets the gradient, as in PyTorch; zeros get none."""

import torch
from torch import nn


class ReluPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        windows = torch.relu(x).unflatten(-1, (-1, 4))
        values = windows.amax(-1)
        first = (windows == values.unsqueeze(-1)).int().argmax(-1)
        ctx.save_for_backward(first, values)
        return values

    @staticmethod
    def backward(ctx, grad_output):
        first, values = ctx.saved_tensors
        grad = grad_output.new_zeros(*values.shape, 4)
        return grad.scatter(-1, first.unsqueeze(-1), (grad_output * (values > 0)).unsqueeze(-1)).flatten(-2)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return ReluPool.apply(x)
