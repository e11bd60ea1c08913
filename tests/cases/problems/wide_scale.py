"""A scale for each column of a large matrix: a single wrong element is one in a hundred thousand."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return x * self.scale


def get_init_inputs():
    return [512]


def get_inputs():
    return [torch.randn(300, 512)]
