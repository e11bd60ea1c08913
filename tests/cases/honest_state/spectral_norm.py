"""The same normalisation written out."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.utils.spectral_norm(nn.Linear(inner, outer))

    def forward(self, x):
        return self.linear(x).clamp_min(0)
