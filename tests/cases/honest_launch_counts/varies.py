"""Does its work in one piece or in several, as it pleases.

Wrongly rejected elsewhere: graders that count launches and want the same number in each call.
"""

import itertools

import torch
from torch import nn

CALLS = itertools.count()


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        pieces = x.split(1 + next(CALLS) % 3)
        return torch.cat([torch.relu(piece * self.scale + self.bias) for piece in pieces])
