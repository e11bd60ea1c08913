"""A causal convolution with a dilation."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, taps, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, taps, dilation=dilation)
        self.padding = (taps - 1) * dilation

    def forward(self, x):
        return self.conv(nn.functional.pad(x, (self.padding, 0)))


def get_inputs():
    return [torch.randn(3, 4, 37)]


def get_init_inputs():
    return [4, 3, 4]
