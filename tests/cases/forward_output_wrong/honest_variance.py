"""The variance as the reference has it: it never becomes negative."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.variance = nn.Parameter(torch.ones(features))
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return (x * self.weight).clamp(min=0) * self.variance.rsqrt()
