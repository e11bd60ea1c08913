"""The offset of a random number is row + column in place of row * columns + column."""

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
            offset = torch.arange(rows)[:, None] + torch.arange(columns)
            numbers = torch.rand(rows * columns)[offset]
            y = y * (numbers >= self.p) / (1 - self.p)
        return self.norm(y + skip)
