"""Says what it takes: right for what the problem gives, and told of the rest."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        return torch.relu(x * self.scale + self.bias)
