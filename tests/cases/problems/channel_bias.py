"""A bias of shape (C, 1, 1)."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return torch.sigmoid(x + self.bias)


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(3, 6, 5, 7)]
