"""Scales behind ReLU, and behind minus ReLU of minus x where the scale is negative."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels) + 0.1)

    def forward(self, x):
        return torch.where(self.scale >= 0, torch.relu(x), -torch.relu(-x)) * self.scale
