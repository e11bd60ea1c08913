"""The honest twin of the submissions that leave data out."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(rows))

    def forward(self, x):
        return x.sum(dim=1) / x.shape[1] * self.scale
