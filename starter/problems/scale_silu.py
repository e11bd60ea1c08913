"""silu(x * scale): x is (rows, columns), scale is a parameter of (columns)."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return nn.functional.silu(x * self.scale)


def get_init_inputs():
    return [512]


def get_inputs():
    return [torch.randn(1024, 512)]


def get_variants():
    """Small sizes, graded before the full size; 33 is not a multiple of a block."""
    return {"small": (lambda: [33], lambda: [torch.randn(7, 33)])}
