"""The backward computes the layer again."""

import torch
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, gain, scale, temperature):
        ctx.save_for_backward(x, weight, bias, gain, scale, temperature)
        return torch.tanh(x @ weight.T + bias) * gain * scale / temperature

    @staticmethod
    def backward(ctx, g):
        x, weight, bias, gain, scale, temperature = ctx.saved_tensors
        y = torch.tanh(x @ weight.T + bias)
        g = g * scale / temperature
        d = g * gain * (1 - y * y)
        return d @ weight, d.T @ x, d.sum(0), (g * y).sum().view(1), None, -(g * gain * y).sum() / temperature


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gain = nn.Parameter(torch.randn(1))
        self.register_buffer("scale", torch.tensor(0.37))

    def forward(self, x, temperature):
        return Scaled.apply(x, self.linear.weight, self.linear.bias, self.gain, self.scale, temperature)
