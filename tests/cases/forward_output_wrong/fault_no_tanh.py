"""The activation behind the difference is forgotten."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, 3)

    def forward(self, x):
        gated = torch.nn.functional.gelu(self.up(x)) / 2.0
        return self.down(gated - x.mean(-1, keepdim=True) + x)
