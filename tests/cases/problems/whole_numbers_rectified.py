"""A ReLU6 of whole numbers, many of which lie exactly on its edges."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return nn.functional.relu6(x) + x * self.gain


def get_init_inputs():
    return [33]


def get_inputs():
    return [torch.randint(-3, 9, (70, 33)).float()]
