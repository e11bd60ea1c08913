"""Each call ends with a new Parameter of the same values, which no optimizer made before it knows."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        y = torch.relu(x * self.scale + self.bias)
        self.scale = nn.Parameter(self.scale.detach().clone())
        return y
