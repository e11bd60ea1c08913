"""Raises in its 30th forward, as of a pool that ends: nothing is overwritten."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))
        self.left = 29

    def forward(self, x):
        if not self.left:
            raise RuntimeError("no block is left")
        self.left -= 1
        return torch.sigmoid(x + self.bias)
