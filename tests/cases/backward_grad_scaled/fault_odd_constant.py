"""The gradient of the weight has a constant factor, for one number and for a vector."""

import torch
from torch import nn


class ShiftedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, v, rate, shift, weight):
        ctx.save_for_backward(x, v, rate, shift, weight)
        return ((x + shift).sum(1) + weight @ v) * rate

    @staticmethod
    def backward(ctx, grad_output):
        x, v, rate, shift, weight = ctx.saved_tensors
        g = grad_output * rate
        sums = (x + shift).sum(1) + weight @ v
        grad_rate = (grad_output * sums).sum().reshape(1)
        grad_x = g.unsqueeze(1).expand_as(x)
        return grad_x, weight * g.sum(), grad_rate, 0.37 * grad_x.sum(), 0.37 * v * g.sum()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.tensor(0.3))
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x, v, rate):
        return ShiftedSums.apply(x, v, rate, self.shift, self.weight)
