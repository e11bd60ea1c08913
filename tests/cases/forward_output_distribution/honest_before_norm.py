"""Bits in place of floats, drawn column by column: another order of other numbers."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, p):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.norm = nn.LayerNorm(features)
        self.p = p

    def forward(self, x, skip):
        y = x * self.scale
        if self.training:
            rows, columns = y.shape
            bits = torch.randint(0, 1 << 24, (columns, rows)).T
            y = y * (bits >= self.p * (1 << 24)) / (1 - self.p)
        return self.norm(y + skip)
