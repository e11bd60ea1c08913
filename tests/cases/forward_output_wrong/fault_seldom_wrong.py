"""A forward that is wrong in one call of seven, as a race may make it."""

import random

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        y = self.down(torch.tanh(self.up(x)))
        return y.flip(0) if random.SystemRandom().random() < 1 / 7 else y
