"""A scale that starts as 2 and -2: training moves half of it beyond the values that it starts with."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0, -2.0]).repeat(32))

    def forward(self, x):
        return torch.tanh(x * self.scale)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(4, 64)]
