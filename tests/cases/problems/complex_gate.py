"""A product with a complex input."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, gate):
        return (x * gate).abs().sum(-1)


def get_init_inputs():
    return []


def get_inputs():
    return [torch.randn(12, 8), torch.randn(12, 8, dtype=torch.cfloat)]
