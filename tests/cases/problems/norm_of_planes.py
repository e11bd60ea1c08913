"""An instance norm over planes of 268,943 elements, one of which hardly moves the mean."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)

    def forward(self, x):
        return torch.tanh(self.norm(x))


def get_init_inputs():
    return [2]


def get_inputs():
    return [torch.randn(1, 2, 521, 517)]
