"""The product of two symmetric matrices: half of what is read is known from the other half."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_init_inputs():
    return []


def get_inputs():
    return [_symmetric(48), _symmetric(48)]


def _symmetric(extent):
    value = torch.rand(extent, extent)
    return (value + value.T) / 2
