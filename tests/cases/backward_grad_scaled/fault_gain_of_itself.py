"""The gradient of the gain has the gain as a factor."""

import torch
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, gain, scale, temperature):
        y = torch.tanh(x @ weight.T + bias)
        ctx.save_for_backward(x, weight, y, gain, scale, temperature)
        return y * gain * scale / temperature

    @staticmethod
    def backward(ctx, grad_output):
        x, weight, y, gain, scale, temperature = ctx.saved_tensors
        grad = grad_output * gain * scale / temperature * (1 - y * y)
        of_gain = (grad_output * y).sum() * gain * scale / temperature
        of_temperature = -(grad_output * y).sum() * gain * scale / temperature**2
        return grad @ weight, grad.T @ x, grad.sum(0), of_gain.view(1), None, of_temperature.view(())


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gain = nn.Parameter(torch.randn(1))
        self.register_buffer("scale", torch.tensor(0.37))

    def forward(self, x, temperature):
        return Scaled.apply(x, self.linear.weight, self.linear.bias, self.gain, self.scale, temperature)
