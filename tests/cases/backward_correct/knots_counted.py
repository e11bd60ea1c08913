"""Counts the knots below each element, where the reference searches for its bin."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.knots = nn.Parameter(torch.linspace(-2, 2, n))
        self.y = nn.Parameter(torch.randn(n))

    def forward(self, x):
        k = self.knots
        i = (x[..., None] >= k).sum(-1).clamp(1, k.numel() - 1)
        a, b = k[i - 1], k[i]
        return torch.lerp(self.y[i - 1], self.y[i], (x - a) / (b - a))
