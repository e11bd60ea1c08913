"""Rows scaled to unit length, with an epsilon that only rows near zero show."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.normalize(x, dim=-1)


def get_inputs():
    return [torch.randn(16, 12)]
