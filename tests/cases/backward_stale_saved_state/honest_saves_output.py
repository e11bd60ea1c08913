"""Saves the output, so that PyTorch refuses a backward after it has changed in place."""

import torch
import torch.nn.functional as F
from torch import nn


class SoftplusLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, scale):
        y = F.softplus(F.linear(x, weight, bias)) * scale
        ctx.save_for_backward(x, weight, scale, y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, scale, y = ctx.saved_tensors
        activated = y / scale
        grad = grad_output * scale * -torch.expm1(-activated)
        return grad @ weight, grad.mT @ x, grad.sum(0), (grad_output * activated).sum(0)


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.rand(outputs) + 0.5)

    def forward(self, x):
        return SoftplusLinear.apply(x, self.linear.weight, self.linear.bias, self.scale)
