"""A generator that is made from the same seed in every forward."""

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
        generator = torch.Generator().manual_seed(torch.initial_seed())
        mask = (
            (torch.rand(y.shape, generator=generator) >= self.p) / (1 - self.p) if self.training else torch.ones_like(y)
        )
        return torch.cat((y * mask + self.shift, x * self.shift), 1)
