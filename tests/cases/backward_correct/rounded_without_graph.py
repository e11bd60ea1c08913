"""Outputs that pass no gradient on, without a graph."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = x * self.scale
        return y, torch.round(y.detach()), y[:, :0].detach()
