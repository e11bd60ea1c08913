"""Counts the padding, forward and backward."""

import torch
from torch import nn


def pooled(x, average):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return x, average(nn.functional.leaky_relu(x, 0.2))


def counted(x):
    return nn.functional.avg_pool2d(x, 3, 2, 1)


class Average(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(pooled(x, counted)[1].detach())
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        leaf, value = pooled(x, counted)
        return torch.autograd.grad(value, leaf, grad_output * (1 - y * y))


class ModelNew(nn.Module):
    def forward(self, x):
        return Average.apply(x)
