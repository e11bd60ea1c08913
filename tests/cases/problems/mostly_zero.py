"""A ReLU that lets one element in forty through: changing a few others changes nothing."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return torch.relu(x * self.scale - 2)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(25, 6, 8)]
