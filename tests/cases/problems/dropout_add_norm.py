"""Dropout of a scaled input, a skip connection, and a layer norm that hides the mask's two values."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, p):
        super().__init__()
        # None is so small that its column hardly varies.
        self.scale = nn.Parameter(torch.randn(features).sign() * (0.5 + torch.rand(features)))
        self.dropout = nn.Dropout(p)
        self.norm = nn.LayerNorm(features)

    def forward(self, x, skip):
        return self.norm(self.dropout(x * self.scale) + skip)


def get_init_inputs():
    return [24, 0.25]


def get_inputs():
    return [torch.randn(40, 24), torch.randn(40, 24)]
