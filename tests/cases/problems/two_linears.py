"""Two linear layers with a tanh between: small enough for one core."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def get_init_inputs():
    return [96, 128]


def get_inputs():
    return [torch.randn(80, 96)]


def get_variants():
    return {"small": (lambda: [24, 40], lambda: [torch.randn(10, 24)])}
