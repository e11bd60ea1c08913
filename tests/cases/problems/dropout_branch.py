"""A residual branch that ends in dropout, with a ReLU before it: random numbers behind non-smooth points."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, p):
        super().__init__()
        self.up = nn.Linear(features, 2 * features)
        self.down = nn.Linear(2 * features, features)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        return x + self.dropout(self.down(torch.relu(self.up(x))))


def get_init_inputs():
    return [8, 0.1]


def get_inputs():
    return [torch.randn(12, 8)]
