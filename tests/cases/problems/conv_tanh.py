"""A convolution behind which something bends."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.tanh(self.conv(x))


def get_init_inputs():
    return [4]


def get_inputs():
    return [torch.randn(2, 4, 8, 8)]
