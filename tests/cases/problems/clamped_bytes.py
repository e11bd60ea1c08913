"""Bytes as floats, clamped to the range of video: some lie at an edge."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels) + 0.5)

    def forward(self, x):
        return torch.clamp(x, 16, 235) * self.scale


def get_inputs():
    return [torch.randint(0, 256, (400, 12)).float()]


def get_init_inputs():
    return [12]
