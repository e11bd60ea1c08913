"""The first call packs the scale for its kernel, as a new Parameter in the place of the old one."""

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
            self.scale = nn.Parameter(self.scale.detach().contiguous())
            self.packed = True
        return torch.relu(x * self.scale + self.bias)
