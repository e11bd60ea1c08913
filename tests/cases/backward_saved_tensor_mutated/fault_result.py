"""It doubles the sigmoid through .data, and the backward of the sigmoid needs what it returned."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x):
        gate = torch.sigmoid(x @ self.weight)
        gate.data.mul_(2)
        return gate
