"""Takes the row before the one that is asked for."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, features))

    def forward(self, positions, scale):
        return self.table[(positions.long() - 1).clamp_min(0)] * scale
