"""Positions that come as floats are positions."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, features))

    def forward(self, positions, scale):
        return nn.functional.embedding(positions.long(), self.table) * scale
