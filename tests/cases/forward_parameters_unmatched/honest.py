"""The honest twin: drawn as the reference draws them."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        linears = [nn.Linear(features, features) for _ in range(3)]
        self.projections = nn.Linear(features, 3 * features)
        self.projections.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]))
        self.projections.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]))

    def forward(self, x):
        q, k, v = self.projections(x).chunk(3, -1)
        return torch.softmax(q @ k.transpose(-1, -2) / x.shape[-1] ** 0.5, -1) @ v
