"""The honest twin: the sines in float32, as a buffer."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, length, features):
        super().__init__()
        angles = torch.arange(length)[:, None] / 10 ** (torch.arange(features) / features)
        self.register_buffer("angles", angles.sin())
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.addcmul(self.angles * self.scale, x, self.scale)
