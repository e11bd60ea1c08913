"""A recurrent mixer's shape: what passes through a nonlinearity, beside a skip path with a gain for each channel."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return torch.tanh(x * self.scale) + x * self.skip


def get_init_inputs():
    return [12]


def get_inputs():
    return [torch.randn(3, 21, 12)]
