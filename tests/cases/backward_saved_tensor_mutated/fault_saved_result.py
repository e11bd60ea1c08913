"""The Function saves its result, which the module then doubles through .data."""

import torch
from torch import nn


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        gate = torch.sigmoid(h)
        ctx.save_for_backward(gate)
        return gate

    @staticmethod
    def backward(ctx, grad_output):
        (gate,) = ctx.saved_tensors
        return grad_output * 2 * gate * (1 - gate)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x):
        gate = Gate.apply(x @ self.weight)
        gate.data *= 2
        return gate
