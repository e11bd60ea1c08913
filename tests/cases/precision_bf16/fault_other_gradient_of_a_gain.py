"""The gradient of a gain, which is one number, is no multiple of the right one; the gain is applied in a Function of its own."""

import torch
from torch import nn


class Gain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain):
        ctx.save_for_backward(x, gain)
        return x * gain

    @staticmethod
    def backward(ctx, grad_output):
        x, gain = ctx.saved_tensors
        terms = grad_output.float() * x.float()
        return grad_output * gain, (terms * x.float()).sum().reshape(1).to(gain.dtype)


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gain = nn.Parameter(torch.randn(1))
        self.register_buffer("scale", torch.tensor(0.37))

    def forward(self, x, temperature):
        return Gain.apply(torch.tanh(self.linear(x)), self.gain) * self.scale / temperature
