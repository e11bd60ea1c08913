"""The honest twin: frozen, as in the reference."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features), requires_grad=False)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.tanh(x * self.scale + self.bias)
