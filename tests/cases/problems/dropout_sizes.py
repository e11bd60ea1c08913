"""A scale, then dropout, at two sizes."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return nn.functional.dropout(x * self.scale, 0.3, self.training)


def get_init_inputs():
    return [64]


def get_inputs():
    return [torch.randn(48, 64)]


def get_variants():
    return {"small": (lambda: [16], lambda: [torch.randn(24, 16)])}
