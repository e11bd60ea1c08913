"""Writes the clipped weights into the parameter by copy_."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.inner = nn.Linear(features, features)

    def forward(self, x):
        with torch.no_grad():
            self.weight.copy_(torch.minimum(self.weight.abs(), torch.tensor(0.5)) * self.weight.sign())
        weight = self.weight
        return torch.tanh(self.inner(x)) @ weight
