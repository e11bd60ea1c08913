"""Two biases that start at zero and stay small, beside inputs that are large."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.above = nn.Parameter(torch.zeros(channels))
        self.below = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return torch.relu(x + self.above) + torch.relu(self.below - x)


def get_init_inputs():
    return [12]


def get_inputs():
    return [40 * torch.randn(5, 7, 12)]
