"""A gate between 0 and 2: a kernel may double the sigmoid in place, though its backward needs the sigmoid."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)

    def forward(self, x):
        return 2 * torch.sigmoid(x @ self.weight)


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return [8]
