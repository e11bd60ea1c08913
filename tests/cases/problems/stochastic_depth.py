"""A branch that some batches do without: whether its parameters get a gradient is random."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        if self.training and torch.rand(()) < 0.5:
            return x * 1.0
        return x + self.linear(x) * (1.0 if self.training else 0.7)


def get_init_inputs():
    return [12]


def get_inputs():
    return [torch.randn(12, 12)]
