"""A linear layer with int8 codes in groups, each with a scale and a zero point."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features, group):
        super().__init__()
        groups = features // group
        self.register_buffer("codes", torch.randint(-128, 128, (features, groups, group), dtype=torch.int8))
        self.zero = nn.Parameter(torch.randint(-20, 20, (features, groups, 1)).float(), requires_grad=False)
        self.scale = nn.Parameter(0.01 + 0.01 * torch.rand(features, groups, 1))

    def forward(self, x):
        weight = ((self.codes.to(x.dtype) - self.zero) * self.scale).flatten(1)
        return x @ weight.T


def get_init_inputs():
    return [24, 8]


def get_inputs():
    return [torch.randn(16, 24)]
