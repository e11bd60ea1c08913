"""Gives its argument the slope 1 at exactly 0 and 6 too."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x.clamp(0, 6) + x * self.gain
