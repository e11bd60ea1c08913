"""The median of each window of whole numbers, times a gain for each channel."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.size = size
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)

    def forward(self, x):
        windows = x.unfold(2, self.size, self.size)
        return torch.median(windows, -1)[0] * self.gain[:, None]


def get_inputs():
    return [torch.randint(0, 8, (5, 4, 48)).float()]


def get_init_inputs():
    return [4, 6]
