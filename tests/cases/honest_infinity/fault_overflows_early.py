"""Overflows where the reference does not."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.log(1 + torch.exp(60 * x + 20) * 2.0611536e-09) * self.scale
