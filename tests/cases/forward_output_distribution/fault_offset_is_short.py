"""The stride of a random number's offset is half a row, so that rows share halves."""

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
            offset = torch.arange(rows)[:, None] * (columns // 2) + torch.arange(columns)
            numbers = torch.rand(rows * columns)[offset]
            y = y * (numbers >= self.p) / (1 - self.p)
        return self.norm(y + skip)
