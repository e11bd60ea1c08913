"""A reference that works in place on its intermediate values."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.activation = nn.LeakyReLU(0.1, inplace=True)

    def forward(self, x):
        x = x * self.scale
        x += 0.5
        x = self.activation(x)
        return x * 2.0


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]
