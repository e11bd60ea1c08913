"""It writes through .data before anything is saved, and its last write goes to a tensor that no backward needs."""

import torch
from torch import nn


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        gate = torch.sigmoid(h)
        ctx.save_for_backward(gate.clone())
        gate.data.mul_(2)
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
        h = x @ self.weight
        gate = Double.apply(h)
        h.data.zero_()
        return gate
