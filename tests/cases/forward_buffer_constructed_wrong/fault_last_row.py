"""Its last row of sines is that of the row before."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, length, features):
        super().__init__()
        angles = torch.arange(length)[:, None] / 10 ** (torch.arange(features) / features)
        self.register_buffer("angles", angles.clamp(max=angles[-2:-1]).sin())
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.addcmul(self.angles * self.scale, x, self.scale)
