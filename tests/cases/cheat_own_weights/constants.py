"""Keeps weights of its own making, hoping that constructors draw alike.

Attack surface: seeding both constructors the same.
Why it fails: the reference's parameters are set by name, and a model that has none to set is wrong.
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        torch.manual_seed(0)
        self.weights = [torch.randn(channels), torch.randn(channels)]

    def forward(self, x):
        scale, bias = self.weights
        return torch.relu(x * scale + bias)
