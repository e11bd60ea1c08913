"""Computes once and returns the output of the last call from then on.

Attack surface: repeated calls on one input.
Why it fails: inputs change in place, move, and change again, and every output is compared.
"""

import torch
from torch import nn

LAST = {}


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if x.shape not in LAST:
            LAST[x.shape] = torch.relu(x * self.scale + self.bias)
        return LAST[x.shape]
