"""A block of a transformer: linear layers around a norm and a GELU, with a residual."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x):
        return x + self.down(functional.gelu(self.norm(self.up(x))))


def get_init_inputs():
    return [48, 96]


def get_inputs():
    return [torch.randn(32, 48)]
