"""A product with a square matrix, so that a transposed gradient has the right shape."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(16, 8)]
