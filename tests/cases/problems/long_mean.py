"""The mean of each long row, scaled: most of the data can be left out without much harm."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(rows))

    def forward(self, x):
        return x.mean(dim=1) * self.scale


def get_init_inputs():
    return [16]


def get_inputs():
    return [torch.rand(16, 4000)]
