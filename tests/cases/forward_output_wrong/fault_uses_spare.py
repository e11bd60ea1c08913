"""Adds a parameter that the reference has and does not use."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.spare = nn.Parameter(torch.randn(features))

    def forward(self, x, hint):
        return torch.tanh(x * self.scale + self.spare)
