"""A scale and a bias per channel, then ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        return torch.relu(x * self.scale + self.bias)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(5, 6, 8)]
