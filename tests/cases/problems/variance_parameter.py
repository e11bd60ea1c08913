"""A parameter that must stay positive, beside one that need not."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.variance = nn.Parameter(torch.ones(features))
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.relu(x * self.weight) / self.variance.sqrt()


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(12, 8)]
