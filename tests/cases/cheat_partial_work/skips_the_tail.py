"""Handles whole vectors of 16 and leaves the tail as it is.

Attack surface: sizes that are multiples of everything.
Why it fails: every element is compared, at sizes that are not.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        y = torch.relu(x * self.scale + self.bias).reshape(-1).clone()
        y[(y.numel() - 1) // 16 * 16 :] = 0
        return y.view_as(x)
