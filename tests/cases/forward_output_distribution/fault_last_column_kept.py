"""The last column is never dropped."""

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
            mask = (torch.rand_like(y) >= self.p) / (1 - self.p)
            mask[:, -1] = 1
            y = y * mask
        return self.norm(y + skip)
