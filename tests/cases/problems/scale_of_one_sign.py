"""A positive scale per channel, as torch.rand makes it, then ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels) + 0.1)

    def forward(self, x):
        return torch.relu(x * self.scale)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(5, 6, 8)]
