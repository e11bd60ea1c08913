"""Spectral normalisation: each forward in train() moves the vectors that its output hangs on."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.utils.spectral_norm(nn.Linear(inner, outer))

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_init_inputs():
    return [24, 16]


def get_inputs():
    return [torch.randn(10, 24)]
