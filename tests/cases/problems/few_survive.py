"""A product of which a ReLU leaves one element in a hundred."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, n))

    def forward(self, x):
        return torch.relu(x @ self.w - 20)


def get_init_inputs():
    return [64, 48]


def get_inputs():
    return [torch.randn(32, 64)]
