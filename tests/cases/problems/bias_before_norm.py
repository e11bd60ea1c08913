"""A bias that batch normalisation takes away again: its gradient is zero, and all that is computed is rounding."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels))
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return torch.relu(self.norm(x + self.bias))


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(64, 6)]
