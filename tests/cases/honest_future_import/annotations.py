"""Starts with a __future__ import.

Wrongly rejected elsewhere: graders that put their own lines in front of the file.
"""

from __future__ import annotations

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: Undefined) -> Undefined:
        return torch.relu(x * self.scale + self.bias)
