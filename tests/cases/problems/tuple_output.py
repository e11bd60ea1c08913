"""Returns a nested tuple."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = x * self.scale
        return y, (y.sum(dim=1), y.amax(dim=1))


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]
