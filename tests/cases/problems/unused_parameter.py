"""A parameter and an input that the output does not depend on: neither has a gradient."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.spare = nn.Parameter(torch.randn(features))

    def forward(self, x, hint):
        return torch.tanh(x * self.scale)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8), torch.randn(6, 8)]
