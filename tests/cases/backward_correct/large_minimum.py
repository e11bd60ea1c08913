"""Adds the parameters first, so that a few minima of the timed calls are another channel's."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.shift = nn.Parameter(torch.rand(channels))
        self.offset = nn.Parameter(8 + torch.rand(channels))

    def forward(self, x):
        return (x + (self.shift + self.offset)).amin(-1)
