"""The honest twin: the first call packs the scale within its Parameter."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.packed = False

    def forward(self, x):
        if not self.packed:
            self.scale.data = self.scale.data.clone()
            self.packed = True
        return torch.relu(x * self.scale + self.bias)
