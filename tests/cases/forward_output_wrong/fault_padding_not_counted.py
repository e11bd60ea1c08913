"""Divides by the elements inside of the image."""

import torch
from torch import nn


def pooled(x, average):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return x, average(nn.functional.leaky_relu(x, 0.2))


def counted(x):
    return nn.functional.avg_pool2d(x, 3, 2, 1)


def inside(x):
    return nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)


class Average(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(pooled(x, inside)[1].detach())
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        leaf, value = pooled(x, inside)
        return torch.autograd.grad(value, leaf, grad_output * (1 - y * y))


class ModelNew(nn.Module):
    def forward(self, x):
        return Average.apply(x)
