"""A layer scaled by a learned number, and by a fixed one: both are left out easily."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gain = nn.Parameter(torch.randn(1))
        self.register_buffer("scale", torch.tensor(0.37))

    def forward(self, x, temperature):
        return torch.tanh(self.linear(x)) * self.gain * self.scale / temperature


def get_init_inputs():
    return [16, 10]


def get_inputs():
    return [torch.randn(12, 16), torch.rand(()) + 1.5]
