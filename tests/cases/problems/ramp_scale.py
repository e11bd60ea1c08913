"""A scale that starts as a ramp: training moves its ends beyond the values that it starts with."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 64))

    def forward(self, x):
        return torch.tanh(x * self.scale)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(4, 64)]
