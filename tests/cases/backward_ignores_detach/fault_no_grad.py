"""The centre is differentiated."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Parameter(torch.randn(8))
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x):
        centre = torch.tanh(self.centre) + x.mean(0)
        return (x - centre) * self.scale
