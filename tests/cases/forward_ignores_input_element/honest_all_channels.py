"""A minimum over all channels, one after the other."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1).sort(0)[0])

    def forward(self, x):
        channels = (self.conv(x) + self.bias) * 2.0
        least = channels[:, :1]
        for channel in range(1, channels.shape[1]):
            least = torch.minimum(least, channels[:, channel : channel + 1])
        return least
