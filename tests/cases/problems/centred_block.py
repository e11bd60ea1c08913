"""A residual block whose steps are followed by a matrix product."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, 3)

    def forward(self, x):
        gated = torch.nn.functional.gelu(self.up(x)) / 2.0
        return self.down(torch.tanh(gated - x.mean(-1, keepdim=True)) + x)


def get_inputs():
    return [torch.randn(48, 24)]


def get_init_inputs():
    return [24]
