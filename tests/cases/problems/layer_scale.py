"""A residual branch that starts at a millionth, as LayerScale has it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.linear = nn.Linear(features, features)
        self.gamma = nn.Parameter(1e-6 * torch.ones(features))

    def forward(self, x):
        return x + self.gamma * torch.tanh(self.linear(self.norm(x)))


def get_init_inputs():
    return [16]


def get_inputs():
    return [torch.randn(12, 16)]
