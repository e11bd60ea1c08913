"""Widens the eight-bit weights in every call, and scales them first."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.register_buffer("weight", torch.randn(features, features).to(torch.float8_e4m3fn))
        self.scale = nn.Parameter(0.5 + torch.rand(features))

    def forward(self, x):
        return x @ (self.weight.to(x.dtype) * self.scale[:, None]).T
