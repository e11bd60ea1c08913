"""A linear layer whose sizes are no multiples of a tile."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.tanh(self.linear(x))


def get_init_inputs():
    return [43, 29]


def get_inputs():
    return [torch.randn(37, 43)]
