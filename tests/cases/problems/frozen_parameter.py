"""A scale that does not require grad, and a bias that does."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features), requires_grad=False)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.tanh(x * self.scale + self.bias)


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(6, 8)]
