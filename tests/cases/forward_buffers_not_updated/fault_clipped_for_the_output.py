"""Clips a copy, which has the right gradient, and leaves the parameter as it is."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.inner = nn.Linear(features, features)

    def forward(self, x):
        weight = self.weight + (self.weight.clamp(-0.5, 0.5) - self.weight).detach()
        return torch.tanh(self.inner(x)) @ weight
