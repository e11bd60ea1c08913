"""NaN where the mask would have zeros."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, p):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.shift = nn.Parameter(torch.randn(channels))
        self.p = p

    def forward(self, x):
        y = self.norm(x)
        mask = (torch.rand_like(y) >= self.p) / (1 - self.p) if self.training else torch.ones_like(y)
        return torch.cat((y * mask / (mask != 0) + self.shift, x * self.shift), 1)
