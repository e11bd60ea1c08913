"""The whole forward runs under no_grad."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    @torch.no_grad()
    def forward(self, x):
        return torch.relu(x * self.scale + self.bias)
