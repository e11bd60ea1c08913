"""A gradient in which nothing is random lacks its last channel, where another is random."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, p):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.shift = nn.Parameter(torch.randn(channels))
        self.p = p

    def forward(self, x):
        shift = self.shift
        if self.training:
            shift = torch.cat((self.shift[:-1], self.shift[-1:].detach()))
        y = self.norm(x)
        mask = (torch.rand_like(y) >= self.p) / (1 - self.p) if self.training else torch.ones_like(y)
        return torch.cat((y * mask + shift, x * shift), 1)
