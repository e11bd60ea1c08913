"""A fusable middle, scale -> leaky ReLU, between two linear layers: the output requires grad whatever the middle does."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = nn.Linear(features, features)
        self.multiplier = nn.Parameter(torch.randn(features))
        self.last = nn.Linear(features, 4)

    def forward(self, x):
        x = self.first(x) * self.multiplier
        return self.last(nn.functional.leaky_relu(x, 0.1))


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(16, 8)]
