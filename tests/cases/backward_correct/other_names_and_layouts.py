"""The parameter is kept as (channels, 1, 1) and under another name, the output comes from a view of another layout."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.factor = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return nn.functional.gelu(x.permute(2, 0, 1) * self.factor).permute(1, 2, 0)
