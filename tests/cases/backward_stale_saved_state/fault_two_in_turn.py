"""Keeps what backward needs in one of two places in turn: the next but one forward overwrites it."""

import torch
from torch import nn

KEPT = {}


class ScaleBiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        y = torch.relu(x * scale + bias)
        ctx.turn = KEPT["turn"] = 1 - KEPT.get("turn", 0)
        KEPT[ctx.turn] = x.clone(), scale.clone(), y > 0
        return y

    @staticmethod
    def backward(ctx, grad):
        x, scale, positive = KEPT[ctx.turn]
        grad = grad * positive
        return grad * scale, (grad * x).sum((0, 1)), grad.sum((0, 1))


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return ScaleBiasReLU.apply(x, self.scale, self.bias)
