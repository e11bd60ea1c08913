"""A number less its own mean: every output is 0."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        top = self.linear(x).amax(1, keepdim=True)
        return nn.functional.gelu(top - top.mean(1, keepdim=True))


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(12, 8)]
