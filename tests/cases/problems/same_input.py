"""A scaled tanh whose makers return the same input each time."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.tanh(x * self.scale)


def get_init_inputs():
    return [96]


def get_inputs():
    return [torch.linspace(-1, 1, 96 * 96).view(96, 96)]
