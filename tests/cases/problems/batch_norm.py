"""Batch normalisation and ReLU; the two modes differ, and one of them writes to the buffers."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(16, 6) * 2 + 0.5]
