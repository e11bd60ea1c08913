"""Batch normalisation, then dropout, and the sum of a skip beside it: some of all that is returned is not random."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, p):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.shift = nn.Parameter(torch.randn(channels))
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        y = self.norm(x)
        return torch.cat((self.dropout(y) + self.shift, x * self.shift), 1)


def get_init_inputs():
    return [8, 0.2]


def get_inputs():
    return [torch.randn(24, 8) * 2 + 0.5]
