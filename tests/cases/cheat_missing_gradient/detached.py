"""Computes without a graph.

Attack surface: graders that never run a backward.
Why it fails: every gradient of the reference is asked for.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        with torch.no_grad():
            return torch.relu(x * self.scale + self.bias)
