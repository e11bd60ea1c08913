"""Scales the convolution and not the bias."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1).sort(0)[0])

    def forward(self, x):
        return torch.min(self.conv(x) * 2.0 + self.bias, dim=1, keepdim=True)[0]
