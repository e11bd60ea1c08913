"""The largest element of each plane of a scaled input."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return (x * self.scale).amax((2, 3))


def get_init_inputs():
    return [6]


def get_inputs():
    return [torch.randn(4, 6, 5, 7)]
