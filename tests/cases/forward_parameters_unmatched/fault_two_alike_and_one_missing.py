"""Two offsets that begin alike have other names, and the weight is missing."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, parts):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return (x + self.second).sum(1) * self.first
