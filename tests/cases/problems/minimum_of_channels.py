"""The least of the channels of a convolution: the last one, whose bias is the largest, never counts."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1).sort(0)[0])

    def forward(self, x):
        return torch.min((self.conv(x) + self.bias) * 2.0, dim=1, keepdim=True)[0]


def get_init_inputs():
    return [8, 24]


def get_inputs():
    return [torch.rand(4, 8, 14, 14)]
