"""Two outputs with gradients, both of the same hidden values; either may be used alone."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        hidden = x * self.scale
        return torch.sin(hidden), hidden * hidden


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]
