"""The branch first, then the residual."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.linear = nn.Linear(features, features)
        self.gamma = nn.Parameter(1e-6 * torch.ones(features))

    def forward(self, x):
        branch = torch.tanh(nn.functional.linear(self.norm(x), self.linear.weight, self.linear.bias))
        return torch.addcmul(x, self.gamma, branch)
