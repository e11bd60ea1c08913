"""The logarithm of probabilities, of which the smallest are raised to the epsilon of the input's dtype."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x):
        shares = torch.softmax(8 * x, -1)
        return shares.clamp(min=torch.finfo(x.dtype).eps).log() * self.gain


def get_init_inputs():
    return [40]


def get_inputs():
    return [torch.randn(16, 40)]
