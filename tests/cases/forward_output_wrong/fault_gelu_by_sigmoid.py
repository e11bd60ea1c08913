"""Computes GELU as x times a sigmoid."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        scaled = x * self.scale
        return scaled * torch.sigmoid(1.702 * scaled)
