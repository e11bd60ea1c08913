"""A forward that is wrong in one call, its fourth, as a race may make it."""

import itertools

import torch
from torch import nn

CALLS = itertools.count(1)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        y = self.down(torch.tanh(self.up(x)))
        return y.flip(0) if next(CALLS) == 4 else y
