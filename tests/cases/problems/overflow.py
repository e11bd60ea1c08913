"""Softplus as one writes it down: exp overflows in float32 where float64 has a finite result."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.log(1 + torch.exp(60 * x)) * self.scale


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(16, 8)]
