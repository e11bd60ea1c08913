"""Sums of shifted rows and a weighted sum that is added to each, times a rate: samples share what the parameters get."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.tensor(0.3))
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x, v, rate):
        return ((x + self.shift).sum(1) + (self.weight * v).sum()) * rate


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(6, 5), torch.randn(8), torch.rand(1) + 0.5]
